"""Batches in the queue as the door writes them, and what became of their items."""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from schema.connection import Connection
from store import bodies, payloads
from store.payloads import AnyFrame, ChapterFrame, Content, Item, StoryFrame

SOURCE = "truyen-a"
AT = datetime(2026, 2, 21, 8, tzinfo=UTC)
STATUSES = ("queued", "processing", "completed", "failed", "dead")


def story(number: int = 1, *, title: str = "T", at: datetime = AT) -> StoryFrame:
    return StoryFrame(source_story_id=f"s{number}", updated_at_source=at, slug=f"s-{number}", title=title)


def chapter(number: int = 1, *, story: int = 1, text: str = "", slug: str = "", at: datetime = AT) -> ChapterFrame:
    raw = (text or f"Nội dung chương {number}.").encode()
    return ChapterFrame(
        source_story_id=f"s{story}",
        updated_at_source=at,
        source_chapter_id=f"c{number}",
        chapter_no=Decimal(number),
        slug=slug or f"c-{number}",
        title=f"Chương {number}",
        content=Content(bodies.compress(raw, "gzip"), "gzip", hashlib.sha256(raw).digest(), len(raw)),
    )


def push(conn: Connection, frames: Sequence[AnyFrame], *, source: str = SOURCE) -> str:
    """Queue one batch; returns its request id."""
    job_type = payloads.STORIES if isinstance(frames[0], StoryFrame) else payloads.CHAPTERS
    request_id = str(uuid.uuid4())
    encoded = [payloads.encode(frame) for frame in frames]
    items = [Item(index, f"{index}", hashlib.sha256(frame).digest(), frame) for index, frame in enumerate(encoded)]
    with conn.transaction():
        conn.execute(
            "INSERT INTO wp_novel_ingest_requests (request_id, source, job_type, idempotency_key, total_items,"
            " accepted_items, created_at, updated_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP())",
            (request_id, source, job_type, request_id, len(items), len(items)),
        )
        for blob in payloads.blobs(items):
            _push_blob(conn, blob, job_type=job_type, source=source, request_id=request_id)
    return request_id


def _push_blob(conn: Connection, blob: payloads.Blob, *, job_type: str, source: str, request_id: str) -> None:
    content = blob.content
    conn.execute(
        "INSERT INTO wp_novel_ingest_payload_blobs (payload_blob, payload_hash, payload_size_bytes, created_at,"
        " expires_at) VALUES (%s, %s, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP() + INTERVAL 1 DAY)",
        (content, hashlib.sha256(content).digest(), len(content)),
    )
    [(blob_id,)] = conn.fetch_all("SELECT LAST_INSERT_ID()")
    rows, offset = [], 0
    for item in blob.items:
        size = len(item.frame)
        rows.append((job_type, source, request_id, request_id, item.external_ref, blob_id, size, item.index, offset))
        offset += size
    with conn.raw.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO wp_novel_ingest_jobs (job_type, source, request_id, idempotency_key, external_ref,"
            " payload_blob_id, payload_size_bytes, item_index, payload_offset, payload_hash, payload_storage,"
            " next_run_at, created_at, updated_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, REPEAT('0', 32), 'blob',"
            " UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP())",
            rows,
        )
    conn.execute(
        "INSERT INTO wp_novel_ingest_ready (job_type, source, request_id, payload_blob_id, first_item, last_item,"
        " items, payload_bytes, next_run_at, created_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
        (job_type, source, request_id, blob_id, blob.items[0].index, blob.items[-1].index, len(rows), len(content)),
    )


def add_stories(conn: Connection, numbers: Iterable[int] = (1,), *, source: str = SOURCE) -> None:
    """Stories that are there already, for chapters."""
    for number in numbers:
        conn.execute(
            "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, status, published_at,"
            " updated_at_source, created_at, updated_at)"
            " VALUES (%s, %s, %s, 'T', 1, UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP())",
            (source, f"s{number}", f"s-{number}"),
        )


@dataclass(frozen=True)
class Ended:
    """What became of an item."""

    status: str
    attempts: int
    crashes: int = 0


DONE = Ended("completed", 1)


def ended(conn: Connection, request_id: str) -> list[Ended]:
    rows = conn.fetch_all(
        "SELECT status, attempts, crashes FROM wp_novel_ingest_jobs WHERE request_id = %s ORDER BY item_index",
        (request_id,),
    )
    return [Ended(STATUSES[status], attempts, crashes) for status, attempts, crashes in rows]


def waiting(conn: Connection) -> list[tuple[object, ...]]:
    """Everything that waits, with all that a unit is."""
    return conn.fetch_all(
        "SELECT id, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, attempts,"
        " crashes, next_run_at, created_at, waiting_for FROM wp_novel_ingest_ready ORDER BY id"
    )


def count(conn: Connection, table: str, where: str = "1") -> int:
    """Rows of one of our tables, by its name without `wp_novel_`."""
    [(rows,)] = conn.fetch_all(f"SELECT COUNT(*) FROM wp_novel_{table} WHERE {where}")
    return int(rows)


def error_of(conn: Connection, request_id: str, index: int) -> tuple[str, str]:
    """The code and the message with which an item ended."""
    [(code, message)] = conn.fetch_all(
        "SELECT error_code, last_error FROM wp_novel_ingest_jobs WHERE request_id = %s AND item_index = %s",
        (request_id, index),
    )
    return code, message


def all_ended(conn: Connection) -> bool:
    return not count(conn, "ingest_jobs", "status = 0")
