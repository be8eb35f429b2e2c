"""Our side of a case: the same work as a bare driver's, through the pool."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from loadtests.bench.case import Bench, Side, Work
from loadtests.bench.drivers import READS_AT_ONCE, Batch, Parameters
from store import pool
from store.connection import Connection
from store.pool import Pool


def reading(sql: str, parameters: Callable[[Bench], Iterator[Parameters]]) -> Side:
    """A side that runs a SELECT with one set of parameters after the other and fetches its rows."""

    @contextlib.asynccontextmanager
    async def side(bench: Bench) -> AsyncIterator[Work]:
        async with _opened(bench) as connections:
            values = parameters(bench)

            async def work() -> int:
                for _ in range(READS_AT_ONCE):
                    async with connections.reading() as conn:
                        await conn.fetch_all(sql, next(values))
                return READS_AT_ONCE

            yield work

    return side


def inserting(batches: Callable[[], Iterator[Batch]]) -> Side:
    """A side that writes one batch in each transaction; its units are the rows of the batch's first statement."""

    @contextlib.asynccontextmanager
    async def side(bench: Bench) -> AsyncIterator[Work]:
        async with _opened(bench) as connections:
            todo = batches()

            async def work() -> int:
                batch = next(todo)

                async def write(conn: Connection) -> None:
                    for sql, rows in batch:
                        await conn.execute_many(sql, rows)

                await connections.transaction(write)
                return len(batch[0][1])

            yield work

    return side


@contextlib.asynccontextmanager
async def _opened(bench: Bench) -> AsyncIterator[Pool]:
    connections = pool.from_settings(bench.settings.database)
    try:
        yield connections
    finally:
        await connections.close()
