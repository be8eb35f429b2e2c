"""Batches of 300 chapters at the HTTP door, until they are answered, beside the least that could keep the same texts.

The door decodes, checks, hashes and compresses each chapter; the bare side writes the texts as they are, with one
connection, into a copy of the job table whose payload is a LONGBLOB, 300 rows in a transaction.
"""

import asyncio
import contextlib
import functools
import hashlib
import itertools
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from loadtests.bench import batches, door, drivers, pooled, queue_tables
from loadtests.bench.batches import Batch, Form
from loadtests.bench.case import Bench, Case, Reset, Side, Work
from loadtests.bench.door import Client
from schema.connection import connect
from store import bodies

CLIENTS = 2
# So many in each call, because the clients wait for each other at its end.
BATCHES_AT_ONCE = 12
# Made beforehand; a batch is pushed again as another request once all were.
DIFFERENT_BATCHES = 16
NOW = datetime(2026, 1, 1)

_CREATE = (
    "DROP TABLE IF EXISTS wp_novel_bench_jobs",
    "CREATE TABLE wp_novel_bench_jobs LIKE wp_novel_ingest_jobs",
    "ALTER TABLE wp_novel_bench_jobs MODIFY payload_inline_json LONGBLOB NULL",
)
_EMPTY = "TRUNCATE TABLE wp_novel_bench_jobs"
_DROP = "DROP TABLE IF EXISTS wp_novel_bench_jobs"

INSERT_JOBS = """
    INSERT INTO wp_novel_bench_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_inline_json, payload_hash,
         payload_size_bytes, payload_encoding, item_index, next_run_at, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def pushing(form: Form) -> Side:
    """A side that pushes batches with two clients at a time."""

    @contextlib.asynccontextmanager
    async def side(bench: Bench) -> AsyncIterator[Work]:
        todo = itertools.cycle(batches.prepared(batches.texts(), form, count=DIFFERENT_BATCHES))
        with door.opened(bench) as served, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(served.client()) for _ in range(CLIENTS)]
            threads = stack.enter_context(ThreadPoolExecutor(CLIENTS))
            loop = asyncio.get_running_loop()

            async def work() -> int:
                waiting = deque(itertools.islice(todo, BATCHES_AT_ONCE))
                pushed = (loop.run_in_executor(threads, _push_all, client, waiting) for client in clients)
                return sum(await asyncio.gather(*pushed))

            yield work

    return side


def _push_all(client: Client, waiting: deque[Batch]) -> int:
    items = 0
    with contextlib.suppress(IndexError):  # nothing is left
        while True:
            items += client.push(waiting.popleft())
    return items


def rows(payloads: Callable[[], tuple[bytes, ...]], encoding: str) -> Iterator[drivers.Batch]:
    """New jobs without end, a batch at a time, with their payloads in the row."""
    contents = payloads()
    hashes = [hashlib.sha256(content).digest() for content in contents]
    for story in itertools.count(1):
        request_id, key = str(uuid.uuid4()), str(uuid.uuid4())
        jobs = [
            (
                *("chapters_bulk", batches.SOURCE, request_id, key, f"s{story:06}/c{index}"),
                *(content, sha256, len(content), encoding, index, NOW, NOW, NOW),
            )
            for index, (content, sha256) in enumerate(zip(contents, hashes, strict=True))
        ]
        yield [(INSERT_JOBS, jobs)]


@functools.cache
def raw() -> tuple[bytes, ...]:
    return tuple(text.encode() for text in batches.texts())


@functools.cache
def compressed() -> tuple[bytes, ...]:
    return tuple(bodies.compress(content, "gzip") for content in raw())


@contextlib.contextmanager
def stage(bench: Bench) -> Iterator[Reset]:
    with queue_tables.owned(bench) as empty_queue, connect(bench.settings.database) as conn:

        def reset() -> None:
            empty_queue()
            conn.execute(_EMPTY)

        for statement in _CREATE:
            conn.execute(statement)
        try:
            yield reset
        finally:
            conn.execute(_DROP)


def _fastest() -> Side:
    """The fastest way known to write so much: values bound to a prepared INSERT, texts compressed beforehand."""
    ready = functools.partial(rows, compressed, "gzip")
    if drivers.MARIADB.is_installed:
        return drivers.inserting(drivers.MARIADB, ready)
    return pooled.inserting(ready)


def _case(name: str, title: str, form: Form, *, bare: Side, target: float | None = None) -> Case:
    return Case(
        name=f"ingest.{name}",
        title=title,
        unit="items",
        ours=pushing(form),
        bare=bare,
        target=target,
        needs_catalogue=False,
        in_quick=target is not None,
        stage=stage,
    )


_BARE = drivers.inserting(drivers.PYMYSQL, functools.partial(rows, raw, "none"))
_AGAINST = "against one bare pymysql connection"

CASES = [
    _case("door", f"300 chapters of 12 KB at the HTTP door {_AGAINST}", batches.JSON, bare=_BARE, target=0.6),
    _case("door_zstd", f"The same, sent as zstd, {_AGAINST}", batches.ZSTD, bare=_BARE),
    _case("door_escaped", f"The same, escaped to ASCII, {_AGAINST}", batches.ESCAPED, bare=_BARE),
    _case(
        "door_of_fastest",
        "300 chapters of 12 KB at the HTTP door against the fastest bare way here: compressed beforehand, prepared"
        f" ({'the C connector' if drivers.MARIADB.is_installed else 'our pool'})",
        batches.JSON,
        bare=_fastest(),
    ),
]
