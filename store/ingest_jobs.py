"""`wp_novel_ingest_jobs`, its payloads and the units that wait: what a batch becomes once it is accepted.

One job row per item, as the specification has it; one blob per batch; and one narrow row per blob in
`wp_novel_ingest_ready`, which is what workers poll.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from store import errors
from store.connection import Connection
from store.payloads import ENCODING, Blob

STATUSES = ("queued", "processing", "completed", "failed", "dead_letter")
# What no repetition can mend: the item itself has to change.
PERMANENT_ERRORS = frozenset({"slug_conflict", "chapter_conflict", "invalid_item"})
# As long as a dead letter may be replayed.
PAYLOAD_DAYS = 30

_INSERT_BLOB = """
    INSERT INTO wp_novel_ingest_payload_blobs
        (payload_blob, payload_hash, payload_size_bytes, payload_encoding, created_at, expires_at)
    VALUES (%s, %s, %s, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP() + INTERVAL %s DAY)
"""
_INSERT_JOB = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_blob_id, payload_hash,
         payload_size_bytes, payload_encoding, payload_storage, item_index, payload_offset, next_run_at, created_at,
         updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 'blob', %s, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP())
    ON DUPLICATE KEY UPDATE id = id
"""
# PRIMARY. It was done when it came: next_run_at says when.
_INSERT_DONE = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_hash, payload_storage, status, item_index,
         next_run_at, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, 'none', 2, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP())
    ON DUPLICATE KEY UPDATE id = id
"""
_INSERT_READY = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, next_run_at,
         created_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
"""
# One narrow row per waiting batch: a scan of the whole table.
_WAITING = "SELECT COALESCE(SUM(items), 0), COALESCE(SUM(payload_bytes), 0) FROM wp_novel_ingest_ready"
# UNIQUE item does not lead with the request, so KEY by_request; the items of one request are few hundred at most.
_ITEMS = """
    SELECT item_index, external_ref, status, is_stale, attempts, error_code, last_error
    FROM wp_novel_ingest_jobs
    WHERE request_id = %s AND source = %s AND item_index > %s ORDER BY item_index LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    items: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ItemState:
    index: int
    external_ref: str
    status: str
    """As of the job; `stale` for one that changed nothing because something newer was there."""
    attempts: int
    error_code: str | None
    message: str | None

    @property
    def can_retry(self) -> bool:
        """Whether pushing the same item again can help."""
        return self.status in ("failed", "dead_letter") and self.error_code not in PERMANENT_ERRORS


async def enqueue(
    conn: Connection,
    blobs: Sequence[tuple[Blob, bytes]],
    *,
    job_type: str,
    source: str,
    request_id: str,
    idempotency_key: str,
    done: Sequence[tuple[int, str, bytes]] = (),
) -> None:
    """Write jobs, payloads and waiting units of one request; each blob comes with its SHA-256.

    `done` has the items (index, reference, fingerprint) of which nothing is left to do: they get a job that has ended.
    """
    if done:
        ended = [
            (job_type, source, request_id, idempotency_key, external_ref, sha256, index)
            for index, external_ref, sha256 in done
        ]
        if await conn.execute_many(_INSERT_DONE, ended) != len(ended):
            raise errors.StoreError("two items of a batch have the same reference")
    for blob, sha256 in blobs:
        content = blob.content
        blob_id = await conn.insert(_INSERT_BLOB, (content, sha256, len(content), ENCODING, PAYLOAD_DAYS))
        rows, offset = [], 0
        for item in blob.items:
            rows.append(
                (
                    *(job_type, source, request_id, idempotency_key, item.external_ref, blob_id),
                    *(item.payload_sha256, len(item.frame), ENCODING, item.index, offset),
                )
            )
            offset += len(item.frame)
        if await conn.execute_many(_INSERT_JOB, rows) != len(rows):
            raise errors.StoreError("two items of a batch have the same reference")
        first, last = blob.items[0].index, blob.items[-1].index
        await conn.execute(_INSERT_READY, (job_type, source, request_id, blob_id, first, last, len(rows), len(content)))


async def waiting(conn: Connection) -> Waiting:
    """How much waits in the queue."""
    row = await conn.fetch_one(_WAITING)
    assert row is not None
    return Waiting(int(row[0]), int(row[1]))


async def items(conn: Connection, *, request_id: str, source: str, after: int, limit: int) -> list[ItemState]:
    """The next items of a request, in the order of the batch; `after` is -1 for the first page."""
    rows = await conn.fetch_all(_ITEMS, (request_id, source, after, limit))
    return [
        ItemState(index, ref, "stale" if is_stale else STATUSES[status], attempts, error_code, last_error)
        for index, ref, status, is_stale, attempts, error_code, last_error in rows
    ]
