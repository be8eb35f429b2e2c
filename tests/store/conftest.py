"""A table for the tests of the pool, and pools with limits of their own."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from runtime.addresses import DatabaseAddress, parse_database
from schema import session
from schema.connection import Connection
from store.pool import Pool

MakePool = Callable[..., Pool]


@pytest.fixture
def address(environ: dict[str, str]) -> DatabaseAddress:
    return parse_database(environ["NOVEL_DATABASE_URL"])


@pytest.fixture
def counters(conn: Connection) -> Iterator[str]:
    """The name of a table of numbered counters."""
    conn.execute("CREATE TABLE wp_novel_test_counters (id INT PRIMARY KEY, value INT NOT NULL)")
    conn.execute("INSERT INTO wp_novel_test_counters VALUES (1, 0), (2, 0), (3, 0)")
    yield "wp_novel_test_counters"
    conn.execute("DROP TABLE wp_novel_test_counters")


@pytest.fixture
async def make_pool(address: DatabaseAddress) -> AsyncIterator[MakePool]:
    made: list[Pool] = []

    def make(
        to: DatabaseAddress = address,
        *,
        size: int = 5,
        wait_seconds: float = 10,
        statement_seconds: float = 10,
        lock_seconds: int = 10,
        table_prefix: str = "wp_",
    ) -> Pool:
        limits = session.Limits(
            statement_seconds=statement_seconds, row_lock_seconds=lock_seconds, table_lock_seconds=lock_seconds
        )
        pool = Pool(
            to, table_prefix=table_prefix, size=size, wait_seconds=wait_seconds, connect_seconds=5, limits=limits
        )
        made.append(pool)
        return pool

    yield make
    for pool in made:
        await pool.close()
