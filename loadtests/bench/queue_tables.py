"""The queue of the benchmark's own database: emptied between samples, and left empty."""

import contextlib
from collections.abc import Iterator

from loadtests.bench.case import Bench, Reset
from runtime.problems import Problem
from schema.connection import Connection, connect

KEY_NAME = "bench"

# Few rows: a run leaves none behind, unless it was killed.
_OF_OTHERS = """
    SELECT r.id FROM wp_novel_ingest_requests r
    LEFT JOIN wp_novel_api_keys k ON k.key_id = r.key_id AND k.key_name = 'bench'
    WHERE k.id IS NULL LIMIT 1
"""
_EMPTY = (
    "TRUNCATE TABLE wp_novel_ingest_ready",
    "TRUNCATE TABLE wp_novel_ingest_jobs",
    "TRUNCATE TABLE wp_novel_ingest_payload_blobs",
    "TRUNCATE TABLE wp_novel_ingest_requests",
    "TRUNCATE TABLE wp_novel_nonce_replay",
)
_DELETE_KEYS = """
    DELETE k, t FROM wp_novel_api_keys k LEFT JOIN wp_novel_api_key_terms t ON t.key_id = k.key_id
    WHERE k.key_name = 'bench'
"""


@contextlib.contextmanager
def owned(bench: Bench) -> Iterator[Reset]:
    """Take the queue, if it holds nothing of anybody else; yields what empties it."""
    with connect(bench.settings.database, statement_seconds=0) as conn:
        if conn.fetch_one(_OF_OTHERS):
            raise Problem(
                f"the database {conn.address.place} holds batches that the benchmark did not push."
                " Point NOVEL_DATABASE_URL elsewhere, or empty that database."
            )
        _empty(conn)
        conn.execute(_DELETE_KEYS)
        try:
            yield lambda: _empty(conn)
        finally:
            # The keys last: as long as they are there, batches of a run that is killed now are known as ours.
            _empty(conn)
            conn.execute(_DELETE_KEYS)


def _empty(conn: Connection) -> None:
    for statement in _EMPTY:
        conn.execute(statement)
