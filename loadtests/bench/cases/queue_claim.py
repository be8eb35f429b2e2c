"""Claims beside ten million finished jobs, against claims of a queue without a past."""

import contextlib
from collections.abc import AsyncIterator, Iterator

from loadtests.bench import finished_jobs, own_database, pipeline
from loadtests.bench.case import Bench, Case, Reset, Side, Work
from schema.connection import Connection
from store import connection as asynchronous
from store import pool, units
from store.units import Unit

SOURCES = 10
UNITS_PER_SOURCE = 50
CLAIMS_AT_ONCE = 20
WORKER = 1
JOB_TYPE = "chapters_bulk"
# Claims may take half as long again.
LEAST_RATIO = 1 / 1.5

_EMPTY = ("TRUNCATE TABLE wp_novel_ingest_ready", "TRUNCATE TABLE wp_novel_ingest_leases")
_ADD = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, next_run_at,
         created_at)
    VALUES ('chapters_bulk', %s, %s, 1, 0, 299, 300, 1000000, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
"""


def claiming(suffix: str) -> Side:
    @contextlib.asynccontextmanager
    async def side(bench: Bench) -> AsyncIterator[Work]:
        connections = pool.from_settings(own_database.beside(bench, suffix).settings.database)

        async def claim(conn: asynchronous.Connection) -> list[Unit]:
            due = await units.due_sources(conn, JOB_TYPE)
            return await units.claim(conn, due, job_type=JOB_TYPE, worker_id=WORKER, max_items=600, max_units=2)

        async def once() -> None:
            claimed = await connections.transaction(claim)
            await connections.transaction(lambda conn: units.give_back(conn, claimed, worker_id=WORKER))

        async def work() -> int:
            for _ in range(CLAIMS_AT_ONCE):
                await once()
            return CLAIMS_AT_ONCE

        try:
            yield work
        finally:
            await connections.close()

    return side


@contextlib.contextmanager
def stage(bench: Bench) -> Iterator[Reset]:
    with own_database.made(bench, pipeline.SUFFIX) as young, finished_jobs.there(bench) as old:
        for conn in (young, old):
            _fill_queue(conn)
        yield lambda: None


def _fill_queue(conn: Connection) -> None:
    for statement in _EMPTY:
        conn.execute(statement)
    rows = [
        (f"source-{source:02}", f"{source:018}-{number:017}")
        for number in range(UNITS_PER_SOURCE)
        for source in range(SOURCES)
    ]
    with conn.raw.cursor() as cursor:
        cursor.executemany(_ADD, rows)


CASES = [
    Case(
        name="queue.claim",
        title="Claims (and returns) beside 10,000,000 finished jobs against a queue without any",
        unit="claims",
        ours=claiming(finished_jobs.SUFFIX),
        bare=claiming(pipeline.SUFFIX),
        target=LEAST_RATIO,
        needs_catalogue=False,
        stage=stage,
    )
]
