"""`wp_novel_ingest_requests`: one row for each batch that was accepted, with the answer it got."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import orjson
from asyncmy.errors import MySQLError

from store import errors
from store.connection import Connection

STATUSES = ("queued", "processing", "completed", "partially_failed", "failed")
MAX_MESSAGE_CHARACTERS = 1000

# INSERT first: of several identical batches at once, one gets the row, and the others wait for its COMMIT.
_INSERT = """
    INSERT INTO wp_novel_ingest_requests
        (request_id, source, job_type, idempotency_key, status, total_items, accepted_items, rejected_items,
         processed_items, payload_hash, response_json, key_id, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP())
"""
# UNIQUE idempotency.
_BY_IDEMPOTENCY_KEY = """
    SELECT id, request_id, payload_hash, response_json, rejected_items,
        created_at < UTC_TIMESTAMP() - INTERVAL %s HOUR
    FROM wp_novel_ingest_requests WHERE source = %s AND job_type = %s AND idempotency_key = %s
"""
# PRIMARY. The old request keeps its row, and frees its key for a new one. No client's key has a space.
_RELEASE_KEY = """
    UPDATE wp_novel_ingest_requests SET idempotency_key = CONCAT(LEFT(idempotency_key, 96), ' ', id) WHERE id = %s
"""
# UNIQUE request_id.
_BY_REQUEST_ID = """
    SELECT request_id, source, job_type, status, total_items, accepted_items, rejected_items, processed_items,
        failed_items, last_error, key_id, created_at, updated_at
    FROM wp_novel_ingest_requests WHERE request_id = %s
"""
# UNIQUE request_id, in its order. Who ends items of one request at the same time waits here for the other.
_LOCK_COUNTS = """
    SELECT r.id, r.request_id, r.accepted_items, r.processed_items, r.failed_items
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (request_id CHAR(36) PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_requests r FORCE INDEX (request_id) ON r.request_id = w.request_id FOR UPDATE
"""
# PRIMARY.
_WRITE_COUNTS = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (
        id BIGINT UNSIGNED PATH '$[0]', processed INT UNSIGNED PATH '$[1]', failed INT UNSIGNED PATH '$[2]',
        status TINYINT UNSIGNED PATH '$[3]', message VARCHAR(1000) PATH '$[4]'
    )) w
    STRAIGHT_JOIN wp_novel_ingest_requests r FORCE INDEX (PRIMARY) ON r.id = w.id
    SET r.processed_items = w.processed, r.failed_items = w.failed, r.status = w.status,
        r.last_error = IF(w.failed = 0, NULL, COALESCE(w.message, r.last_error)), r.updated_at = UTC_TIMESTAMP()
"""


@dataclass(slots=True)
class Ended:
    """Items of one request that have ended."""

    processed: int = 0
    failed: int = 0
    message: str | None = None

    def add(self, *, failed: bool, message: str | None) -> None:
        self.failed += failed
        self.processed += not failed
        self.message = message or self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    request_id: str
    source: str
    job_type: str
    idempotency_key: str
    total_items: int
    accepted_items: int
    payload_sha256: bytes
    response: bytes
    key_id: str
    done_items: int = 0
    """Of which nothing is left for a worker to do."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A request that has used an idempotency key before."""

    id: int
    request_id: str
    payload_sha256: bytes
    response: bytes
    all_accepted: bool
    is_expired: bool


@dataclass(frozen=True, slots=True)
class State:
    request_id: str
    source: str
    job_type: str
    status: str
    total_items: int
    accepted_items: int
    rejected_items: int
    processed_items: int
    failed_items: int
    last_error: str | None
    key_id: str | None
    created_at: datetime
    updated_at: datetime


class RequestTaken(Exception):
    """Another request has this request id, or this idempotency key."""


async def insert(conn: Connection, new: NewRequest) -> None:
    """Raises RequestTaken; of two at once the second waits for the first one's COMMIT."""
    values = (
        *(new.request_id, new.source, new.job_type, new.idempotency_key),
        STATUSES.index("completed" if new.done_items == new.accepted_items else "queued"),
        *(new.total_items, new.accepted_items, new.total_items - new.accepted_items, new.done_items),
        *(new.payload_sha256, new.response.decode(), new.key_id),
    )
    try:
        await conn.execute(_INSERT, values)
    except MySQLError as error:
        if errors.is_duplicate(error):
            raise RequestTaken from None
        raise


async def find_earlier(
    conn: Connection, *, source: str, job_type: str, idempotency_key: str, retention_hours: int
) -> Earlier | None:
    row = await conn.fetch_one(_BY_IDEMPOTENCY_KEY, (retention_hours, source, job_type, idempotency_key))
    if row is None:
        return None
    number, request_id, payload_hash, response, rejected, is_expired = row
    return Earlier(number, request_id, payload_hash or b"", (response or "").encode(), not rejected, bool(is_expired))


async def release_key(conn: Connection, earlier: Earlier) -> None:
    """Let a key whose retention has ended be used again."""
    await conn.execute(_RELEASE_KEY, (earlier.id,))


async def find(conn: Connection, request_id: str) -> State | None:
    row = await conn.fetch_one(_BY_REQUEST_ID, (request_id,))
    if row is None:
        return None
    return State(row[0], row[1], row[2], STATUSES[row[3]], *row[4:])


async def count_ended(conn: Connection, ended: Mapping[str, Ended]) -> None:
    """Count items that have ended, by their request's id; the last one of a request decides its final state."""
    rows = []
    for number, request_id, accepted, processed, failed in await conn.fetch_all(
        _LOCK_COUNTS, (orjson.dumps(sorted(ended)).decode(),)
    ):
        more = ended[request_id]
        processed, failed = processed + more.processed, failed + more.failed
        status = STATUSES.index(status_of(accepted, processed, failed))
        rows.append((number, processed, failed, status, readable(more.message)))
    if rows:  # else retention has deleted it
        await conn.execute(_WRITE_COUNTS, (orjson.dumps(rows).decode(),))


def readable(message: str | None) -> str | None:
    """An error as it is stored: not too long, and text, whatever an exception had in it."""
    return message[:MAX_MESSAGE_CHARACTERS].encode(errors="replace").decode() if message else None


def status_of(accepted: int, processed: int, failed: int) -> str:
    """The state of a request of which so many items have ended."""
    if processed + failed < accepted:
        return "processing"
    if not failed:
        return "completed"
    return "partially_failed" if processed else "failed"
