"""Millions of finished jobs, in a database of their own that later runs find again."""

import contextlib
from collections.abc import Iterator

from loadtests.bench import own_database
from loadtests.bench.case import Bench
from runtime import progress
from runtime.problems import Problem
from schema.connection import Connection

SUFFIX = "history"
# Of each chapter of the catalogue; for the usual catalogue that makes ten million, in a quick run one.
JOBS_PER_CHAPTER = 50
# Written by one statement.
PIECE = 250_000

_COUNT = "SELECT COUNT(*) FROM wp_novel_ingest_jobs"
_EMPTY = "TRUNCATE TABLE wp_novel_ingest_jobs"
# Nobody else writes, and no two are the same: so the server need not look.
_TRUST_US = "SET SESSION unique_checks = 0, foreign_key_checks = 0"
_ANALYZE = "ANALYZE TABLE wp_novel_ingest_jobs"
# Completed jobs of requests of 300 items, a hundred a second, in the order in which they would have come.
_FILL = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_blob_id, payload_hash,
         payload_size_bytes, payload_encoding, payload_storage, status, attempts, item_index, next_run_at, created_at,
         updated_at)
    SELECT 'chapters_bulk', CONCAT('source-', LPAD(n DIV 1000000, 2, '0')),
        CONCAT(LPAD(n DIV 300, 28, '0'), '-request'), CONCAT(LPAD(n DIV 300, 28, '0'), '-request'),
        CONCAT('s', LPAD(n DIV 300, 8, '0'), '/c', LPAD(n, 10, '0')), n DIV 300, UNHEX(LPAD(HEX(n), 64, '0')), 5000,
        'msgpack', 'blob', 2, 1, n MOD 300, '2026-01-01' + INTERVAL n DIV 100 SECOND,
        '2026-01-01' + INTERVAL n DIV 100 SECOND, '2026-01-01' + INTERVAL n DIV 100 SECOND
    FROM (SELECT %s + seq AS n FROM seq_1_to_250000 WHERE seq <= %s) numbers
"""


def wanted(bench: Bench) -> int:
    return bench.sizes.chapters * JOBS_PER_CHAPTER


@contextlib.contextmanager
def there(bench: Bench) -> Iterator[Connection]:
    """The database with as many finished jobs as are wanted; made once, and kept."""
    with own_database.kept(bench, SUFFIX) as conn:
        if not conn.dialect.is_mariadb:
            raise Problem("the finished jobs of this benchmark are made by MariaDB's sequences: use a MariaDB.")
        if conn.fetch_all(_COUNT)[0][0] != wanted(bench):
            _fill(conn, wanted(bench))
        yield conn


def _fill(conn: Connection, count: int) -> None:
    conn.execute(_EMPTY)
    conn.execute(_TRUST_US)
    with progress.bar("Finished jobs made", total=count) as step:
        for first in range(0, count, PIECE):
            piece = min(PIECE, count - first)
            conn.execute(_FILL, (first, piece))
            step(piece)
    conn.fetch_all(_ANALYZE)
