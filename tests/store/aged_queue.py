"""Rows of the queue's tables as they are after some time, written without the queue."""

from typing import Any
from uuid import uuid4

from schema.connection import Connection as PlainConnection

QUEUED, COMPLETED, FAILED, DEAD = 0, 2, 3, 4
REQUEST_QUEUED, PROCESSING, REQUEST_COMPLETED, PARTIALLY_FAILED, REQUEST_FAILED = range(5)
LAST_ID = "SELECT LAST_INSERT_ID()"
_NEW_REQUEST = """
    INSERT INTO wp_novel_ingest_requests
        (request_id, source, job_type, idempotency_key, status, accepted_items, failed_items, created_at, updated_at)
    SELECT %s, 'truyen-a', 'stories_bulk', %s, %s, 5, 5, at, at FROM (SELECT UTC_TIMESTAMP() - INTERVAL %s HOUR at) t
"""
_NEW_BLOB = """
    INSERT INTO wp_novel_ingest_payload_blobs (payload_blob, payload_hash, payload_size_bytes, created_at, expires_at)
    VALUES ('12345', '', 5, UTC_TIMESTAMP(), UTC_TIMESTAMP() + INTERVAL %s HOUR)
"""
_NEW_JOB = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_blob_id, payload_hash,
         payload_size_bytes, item_index, status, next_run_at, created_at, updated_at)
    SELECT 'stories_bulk', 'truyen-a', %s, '', UUID(), %s, '', 1, %s, %s, at, at, at
    FROM (SELECT UTC_TIMESTAMP() - INTERVAL %s HOUR at) t
"""
_MANY_JOBS = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_hash, status, next_run_at, created_at,
         updated_at)
    SELECT 'stories_bulk', 'truyen-a', 'other', '', seq, '', %s, UTC_TIMESTAMP() - INTERVAL seq SECOND, at, at
    FROM (SELECT UTC_TIMESTAMP() at) t, seq_1_to_20000
"""
_MANY_REQUESTS = """
    INSERT INTO wp_novel_ingest_requests
        (request_id, source, job_type, idempotency_key, status, created_at, updated_at)
    SELECT seq, 'truyen-a', 'stories_bulk', seq, %s, at, UTC_TIMESTAMP() - INTERVAL seq SECOND
    FROM (SELECT UTC_TIMESTAMP() at) t, seq_1_to_20000
"""
_MANY_BLOBS = """
    INSERT INTO wp_novel_ingest_payload_blobs (payload_blob, payload_hash, payload_size_bytes, created_at, expires_at)
    SELECT '', '', 0, UTC_TIMESTAMP(), UTC_TIMESTAMP() + INTERVAL seq SECOND FROM seq_1001_to_21000
"""


def new_request(conn: PlainConnection, status: int = REQUEST_COMPLETED, *, hours: int = 0) -> str:
    """A request that was last changed so many hours ago."""
    request_id = str(uuid4())
    conn.execute(_NEW_REQUEST, (request_id, request_id, status, hours))
    return request_id


def new_blob(conn: PlainConnection, *, expires_in_hours: int = -1) -> int:
    conn.execute(_NEW_BLOB, (expires_in_hours,))
    return int(conn.fetch_all(LAST_ID)[0][0])


def new_job(
    conn: PlainConnection,
    status: int,
    *,
    hours: int = 0,
    request_id: str = "r",
    blob_id: int | None = None,
    index: int = 0,
) -> int:
    """A job that ended so many hours ago."""
    conn.execute(_NEW_JOB, (request_id, blob_id, index, status, hours))
    return int(conn.fetch_all(LAST_ID)[0][0])


def unit_of(conn: PlainConnection, job_id: int, table: str) -> None:
    """What waits, or is leased, for a job."""
    more = {"ready": ("next_run_at", "UTC_TIMESTAMP(6)"), "leases": ("worker_id, claimed_at", "7, UTC_TIMESTAMP(6)")}
    columns, values = more[table]
    conn.execute(
        f"INSERT INTO wp_novel_ingest_{table} (id, job_type, source, request_id, payload_blob_id, first_item,"
        f" last_item, created_at, {columns}) SELECT id, job_type, source, request_id, payload_blob_id, item_index,"
        f" item_index, UTC_TIMESTAMP(6), {values} FROM wp_novel_ingest_jobs WHERE id = %s",
        (job_id,),
    )


def ids(conn: PlainConnection, table: str, column: str = "id") -> list[Any]:
    return [row[0] for row in conn.fetch_all(f"SELECT {column} FROM wp_novel_ingest_{table} ORDER BY id")]


def many_jobs(conn: PlainConnection) -> None:
    """20,000 that have just been completed."""
    conn.execute(_MANY_JOBS, (COMPLETED,))


def many_requests(conn: PlainConnection) -> None:
    """20,000 that have just been completed."""
    conn.execute(_MANY_REQUESTS, (REQUEST_COMPLETED,))


def many_blobs(conn: PlainConnection) -> None:
    """20,000 that are kept for a while."""
    conn.execute(_MANY_BLOBS)
