"""A batch in the queue: job rows, the frames they point at, and the units that wait."""

import hashlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from schema.connection import Connection as PlainConnection
from store import ingest_jobs, payloads
from store.connection import Connection
from store.ingest_jobs import Waiting
from store.payloads import Blob, Item, StoryFrame
from store.pool import Pool

SOURCE = "truyen-a"
_FRAMES = """
    SELECT jobs.item_index, jobs.external_ref, jobs.payload_hash, jobs.payload_size_bytes,
        SUBSTRING(blobs.payload_blob, jobs.payload_offset + 1, jobs.payload_size_bytes)
    FROM wp_novel_ingest_jobs jobs JOIN wp_novel_ingest_payload_blobs blobs ON blobs.id = jobs.payload_blob_id
    ORDER BY jobs.item_index
"""


def item(index: int, title: str) -> Item:
    frame = payloads.encode(
        StoryFrame(source_story_id=f"s{index}", updated_at_source=datetime(2026, 1, 1, tzinfo=UTC), title=title)
    )
    return Item(index, f"s{index}", hashlib.sha256(frame).digest(), frame)


def hashed(blobs: Sequence[Blob]) -> list[tuple[Blob, bytes]]:
    return [(blob, hashlib.sha256(blob.content).digest()) for blob in blobs]


async def enqueue(
    pool: Pool, blobs: Sequence[Blob], *, source: str = SOURCE, request_id: str | None = None, fails: bool = False
) -> str:
    request_id = request_id or str(uuid.uuid4())

    async def work(conn: Connection) -> None:
        await ingest_jobs.enqueue(
            conn,
            hashed(blobs),
            job_type=payloads.STORIES,
            source=source,
            request_id=request_id,
            idempotency_key="key",
        )
        if fails:
            raise RuntimeError("after all was written")

    await pool.transaction(work)
    return request_id


async def test_every_job_row_points_at_its_own_frame(pool: Pool, conn: PlainConnection) -> None:
    items = [item(index, "T" * (index * 37 % 500)) for index in (0, 1, 3, 4, 7, 200, 299)]
    blobs = payloads.blobs(items, max_bytes=600)
    assert len(blobs) > 2
    await enqueue(pool, blobs)
    rows = conn.fetch_all(_FRAMES)
    assert [row[:3] for row in rows] == [(item.index, item.external_ref, item.payload_sha256) for item in items]
    for item_, (*_, size, frame) in zip(items, rows, strict=True):
        assert (frame, size) == (item_.frame, len(item_.frame))
        assert payloads.decode(frame) == payloads.decode(item_.frame)


async def test_a_job_row_says_how_its_payload_is_kept(pool: Pool, conn: PlainConnection) -> None:
    request_id = await enqueue(pool, payloads.blobs([item(5, "A")]))
    assert conn.fetch_all(
        "SELECT job_type, source, request_id, idempotency_key, payload_inline_json, payload_encoding, payload_storage,"
        " status, attempts, next_run_at <= UTC_TIMESTAMP(), locked_at FROM wp_novel_ingest_jobs"
    ) == [(payloads.STORIES, SOURCE, request_id, "key", None, "msgpack", "blob", 0, 0, 1, None)]


async def test_a_blob_has_its_hash_its_size_and_an_end(pool: Pool, conn: PlainConnection) -> None:
    blobs = payloads.blobs([item(0, "A"), item(1, "B")])
    await enqueue(pool, blobs)
    assert conn.fetch_all(
        "SELECT payload_blob, payload_hash, payload_size_bytes, payload_encoding, DATEDIFF(expires_at, created_at)"
        " FROM wp_novel_ingest_payload_blobs"
    ) == [(blobs[0].content, hashlib.sha256(blobs[0].content).digest(), blobs[0].size_bytes, "msgpack", 30)]


async def test_each_blob_is_a_unit_that_waits(pool: Pool, conn: PlainConnection) -> None:
    blobs = payloads.blobs([item(index, "T" * 100) for index in (0, 2, 3, 9)], max_bytes=300)
    request_id = await enqueue(pool, blobs)
    rows = conn.fetch_all(
        "SELECT ready.job_type, ready.source, ready.request_id, ready.first_item, ready.last_item, ready.items,"
        " ready.payload_bytes, blobs.payload_blob FROM wp_novel_ingest_ready ready"
        " JOIN wp_novel_ingest_payload_blobs blobs ON blobs.id = ready.payload_blob_id ORDER BY ready.id"
    )
    assert rows == [
        (payloads.STORIES, SOURCE, request_id, 0, 2, 2, blobs[0].size_bytes, blobs[0].content),
        (payloads.STORIES, SOURCE, request_id, 3, 9, 2, blobs[1].size_bytes, blobs[1].content),
    ]


async def test_what_waits_is_added_up(pool: Pool) -> None:
    async with pool.reading() as conn:
        assert await ingest_jobs.waiting(conn) == Waiting(0, 0)
    blobs = payloads.blobs([item(index, "T") for index in range(5)])
    for source in ("a", "b"):
        await enqueue(pool, blobs, source=source)
    async with pool.reading() as conn:
        assert await ingest_jobs.waiting(conn) == Waiting(10, 2 * blobs[0].size_bytes)


async def test_a_blob_of_the_largest_size_is_taken(pool: Pool, conn: PlainConnection) -> None:
    frame = bytes(range(256)) * (payloads.MAX_BLOB_BYTES // 256)
    large = Item(0, "s0", hashlib.sha256(frame).digest(), frame)
    small = item(1, "A")
    await enqueue(pool, payloads.blobs([large, small]))
    rows = conn.fetch_all("SELECT LENGTH(payload_blob) FROM wp_novel_ingest_payload_blobs ORDER BY id")
    assert rows == [(payloads.MAX_BLOB_BYTES,), (len(small.frame),)]


async def test_names_of_items_are_told_apart_byte_by_byte(pool: Pool, conn: PlainConnection) -> None:
    names = ("a", "A", "a ", "á", "đ", "d", "😀", "x" * 191, "Ấ" * 191)
    items = [Item(index, name, bytes(32), b"frame") for index, name in enumerate(names)]
    await enqueue(pool, payloads.blobs(items))
    rows = conn.fetch_all("SELECT external_ref FROM wp_novel_ingest_jobs ORDER BY item_index")
    assert [row[0] for row in rows] == list(names)


async def test_a_transaction_that_fails_leaves_nothing(pool: Pool, conn: PlainConnection) -> None:
    with pytest.raises(RuntimeError, match="after all was written"):
        await enqueue(pool, payloads.blobs([item(0, "A"), item(1, "B")], max_bytes=10), fails=True)
    for table in ("jobs", "payload_blobs", "ready"):
        assert conn.fetch_all(f"SELECT COUNT(*) FROM wp_novel_ingest_{table}") == [(0,)]


async def test_the_items_of_a_request_come_in_pages_in_the_order_of_the_batch(pool: Pool) -> None:
    first = await enqueue(pool, payloads.blobs([item(index, "A") for index in range(7)], max_bytes=100))
    await enqueue(pool, payloads.blobs([item(index, "B") for index in range(3)]))
    async with pool.reading() as conn:
        pages, after = [], -1
        while page := await ingest_jobs.items(conn, request_id=first, source=SOURCE, after=after, limit=3):
            pages.append([item.index for item in page])
            after = page[-1].index
        assert pages == [[0, 1, 2], [3, 4, 5], [6]]
        assert await ingest_jobs.items(conn, request_id=first, source="another", after=-1, limit=3) == []


@pytest.mark.parametrize(
    ("status", "is_stale", "error_code", "shown", "can_retry"),
    [
        (0, 0, None, "queued", False),
        (1, 0, None, "processing", False),
        (2, 0, None, "completed", False),
        (2, 1, None, "stale", False),
        (3, 0, "story_not_found", "failed", True),
        (3, 0, "slug_conflict", "failed", False),
        (4, 0, "database_error", "dead_letter", True),
        (4, 0, "invalid_item", "dead_letter", False),
        (4, 0, None, "dead_letter", True),
    ],
)
async def test_an_item_says_how_it_is_and_whether_a_retry_can_help(
    pool: Pool,
    conn: PlainConnection,
    status: int,
    is_stale: int,
    error_code: str | None,
    shown: str,
    can_retry: bool,
) -> None:
    request_id = await enqueue(pool, payloads.blobs([item(0, "A")]))
    conn.execute(
        "UPDATE wp_novel_ingest_jobs SET status = %s, is_stale = %s, error_code = %s, last_error = 'why', attempts = 2",
        (status, is_stale, error_code),
    )
    async with pool.reading() as reading:
        (found,) = await ingest_jobs.items(reading, request_id=request_id, source=SOURCE, after=-1, limit=1)
    assert (found.status, found.can_retry) == (shown, can_retry)
    assert (found.index, found.external_ref, found.error_code, found.message, found.attempts) == (
        *(0, "s0", error_code, "why", 2),
    )
