"""Batches in the queue, as the door leaves them and as workers do: waiting, dead, failed, completed."""

import asyncio
import hashlib
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import bodies, dead_letters, ingest_jobs, ingest_requests, payloads, replays
from store.connection import Connection
from store.dead_letters import Wanted
from store.ingest_jobs import STATUSES
from store.ingest_requests import NewRequest
from store.payloads import AnyFrame, ChapterFrame, Content, Item, StoryFrame
from store.pool import Pool
from store.replays import Run
from worker.chapters import Chapters
from worker.loop import QueueLoop, Shared
from worker.membership import Membership
from worker.stories import Stories

SOURCE = "truyen-a"
EARLIER = datetime(2026, 1, 1, tzinfo=UTC)
LATER = EARLIER + timedelta(days=1)


@dataclass(frozen=True)
class Batch:
    request_id: str
    job_ids: tuple[int, ...]
    blob_ids: tuple[int, ...]


def story(number: int = 1, **fields: Any) -> StoryFrame:
    given: dict[str, Any] = {"source_story_id": f"s{number}", "slug": f"truyen-{number}", "title": f"Truyện {number}"}
    return StoryFrame(**{"updated_at_source": EARLIER} | given | fields)


def chapter(number: int = 1, *, text: str = "Nội dung.", **fields: Any) -> ChapterFrame:
    raw = text.encode()
    content = Content(bodies.compress(raw, "gzip"), "gzip", hashlib.sha256(raw).digest(), len(raw))
    given: dict[str, Any] = {
        "source_story_id": "s1",
        "source_chapter_id": f"c{number}",
        "chapter_no": Decimal(number),
        "slug": f"chuong-{number}",
        "title": f"Chương {number}",
        "content": content,
    }
    return ChapterFrame(**{"updated_at_source": EARLIER} | given | fields)


async def make_batch(
    pool: Pool,
    frames: Sequence[AnyFrame],
    *,
    source: str = SOURCE,
    indexes: Sequence[int] | None = None,
    max_blob_bytes: int = payloads.MAX_BLOB_BYTES,
) -> Batch:
    """Accept a batch, as the door does; `indexes` are those of its items that were not refused."""
    request_id = str(uuid.uuid4())
    job_type = payloads.STORIES if isinstance(frames[0], StoryFrame) else payloads.CHAPTERS
    encoded = [payloads.encode(frame) for frame in frames]
    items = [
        Item(index, f"ref-{index}", hashlib.sha256(frame).digest(), frame)
        for index, frame in zip(indexes or range(len(encoded)), encoded, strict=True)
    ]
    blobs = payloads.blobs(items, max_bytes=max_blob_bytes)

    async def work(conn: Connection) -> None:
        new = NewRequest(
            request_id=request_id,
            source=source,
            job_type=job_type,
            idempotency_key=request_id,
            total_items=items[-1].index + 1,
            accepted_items=len(items),
            payload_sha256=bytes(32),
            response=b"{}",
            key_id="key",
        )
        await ingest_requests.insert(conn, new)
        hashed = [(blob, hashlib.sha256(blob.content).digest()) for blob in blobs]
        await ingest_jobs.enqueue(
            conn, hashed, job_type=job_type, source=source, request_id=request_id, idempotency_key=request_id
        )

    await pool.transaction(work)
    async with pool.reading() as conn:
        rows = await conn.fetch_all(
            "SELECT id, payload_blob_id FROM wp_novel_ingest_jobs WHERE request_id = %s ORDER BY item_index",
            (request_id,),
        )
    return Batch(request_id, tuple(row[0] for row in rows), tuple(sorted({row[1] for row in rows})))


def end(
    conn: PlainConnection,
    batch: Batch,
    *,
    dead: Collection[int] | None = None,
    failed: Collection[int] = (),
    code: str | None = "apply_failed",
    ago_seconds: int = 0,
) -> None:
    """As if workers had ended all items: these places dead (None: all) or failed, the others completed."""
    places = range(len(batch.job_ids))
    gave_up = set(places) - set(failed) if dead is None else set(dead)
    conn.execute("DELETE FROM wp_novel_ingest_ready WHERE request_id = %s", (batch.request_id,))
    for place in places:
        status = "dead_letter" if place in gave_up else "failed" if place in failed else "completed"
        error = (None, None) if status == "completed" else (code, "what went wrong")
        conn.execute(
            "UPDATE wp_novel_ingest_jobs SET status = %s, error_code = %s, last_error = %s, attempts = 5,"
            " next_run_at = UTC_TIMESTAMP() - INTERVAL %s SECOND WHERE id = %s",
            (STATUSES.index(status), *error, ago_seconds, batch.job_ids[place]),
        )
    failures = len(gave_up) + len(failed)
    processed = len(places) - failures
    state = ingest_requests.status_of(len(places), processed, failures)
    conn.execute(
        "UPDATE wp_novel_ingest_requests SET processed_items = %s, failed_items = %s, status = %s"
        " WHERE request_id = %s",
        (processed, failures, ingest_requests.STATUSES.index(state), batch.request_id),
    )


async def make_dead(
    pool: Pool,
    conn: PlainConnection,
    frames: Sequence[AnyFrame] | None = None,
    *,
    source: str = SOURCE,
    code: str | None = "apply_failed",
    ago_seconds: int = 0,
) -> Batch:
    """A batch of which every item is a dead letter."""
    batch = await make_batch(pool, frames or [chapter()], source=source)
    end(conn, batch, code=code, ago_seconds=ago_seconds)
    return batch


def lose_payload(conn: PlainConnection, batch: Batch) -> None:
    """As if its time was over."""
    conn.execute("DELETE FROM wp_novel_ingest_payload_blobs WHERE id IN %s", (batch.blob_ids,))


async def work_off(pool: Pool, settings: Settings, kind: str) -> int:
    """Work all that is due of a kind, as a worker does; returns how many items that were."""
    handler = Stories() if kind == "stories" else Chapters(max_versions=5)
    membership = Membership(settings.database, kind=kind, lease_seconds=settings.worker.lease_seconds)
    membership.join()
    loop = QueueLoop(pool, handler, membership, Shared(), asyncio.Event(), settings=settings)
    items = 0
    try:
        while taken := await loop.step():
            items += taken
    finally:
        membership.leave()
    return items


def unhurried(seconds: float) -> None:
    return None


def begin_replay(conn: PlainConnection, **filters: Any) -> tuple[Run, list[int]]:
    """A run of all that matches, and the jobs it has found."""
    wanted = Wanted(**{"until": dead_letters.now(conn)} | filters)
    found = dead_letters.find(conn, wanted)
    return replays.begin(conn, wanted, found, operator="anh"), list(found.job_ids)


# -- what there is --------------------------------------------------------------------------------------


def states(conn: PlainConnection, batch: Batch) -> list[str]:
    """The states of a batch's items, in their order."""
    rows = conn.fetch_all(
        "SELECT status FROM wp_novel_ingest_jobs WHERE request_id = %s ORDER BY item_index", (batch.request_id,)
    )
    return [STATUSES[status] for (status,) in rows]


def waiting_items(conn: PlainConnection) -> int:
    return int(conn.fetch_all("SELECT COALESCE(SUM(items), 0) FROM wp_novel_ingest_ready")[0][0])


def request_state(conn: PlainConnection, batch: Batch) -> tuple[str, int, int]:
    """Its status, and how many of its items are processed and failed."""
    [(status, processed, failed)] = conn.fetch_all(
        "SELECT status, processed_items, failed_items FROM wp_novel_ingest_requests WHERE request_id = %s",
        (batch.request_id,),
    )
    return ingest_requests.STATUSES[status], processed, failed


def assert_consistent(conn: PlainConnection) -> None:
    """Every open item is in just one unit, no other is in any, and requests count what their items say."""
    items = conn.fetch_all(
        "SELECT j.id, j.status, COUNT(u.id) FROM wp_novel_ingest_jobs j LEFT JOIN"
        " (SELECT id, payload_blob_id, first_item, last_item FROM wp_novel_ingest_ready UNION ALL"
        "  SELECT id, payload_blob_id, first_item, last_item FROM wp_novel_ingest_leases) u"
        " ON u.payload_blob_id = j.payload_blob_id AND j.item_index BETWEEN u.first_item AND u.last_item"
        " GROUP BY j.id, j.status"
    )
    wrong = [row for row in items if row[2] != int(row[1] == 0)]
    assert not wrong, f"job, status, units: {wrong}"
    units = conn.fetch_all(
        "SELECT r.id, r.items, r.payload_bytes, COUNT(j.id), COALESCE(SUM(j.payload_size_bytes), 0)"
        " FROM wp_novel_ingest_ready r LEFT JOIN wp_novel_ingest_jobs j ON j.payload_blob_id = r.payload_blob_id"
        " AND j.request_id = r.request_id AND j.item_index BETWEEN r.first_item AND r.last_item"
        " GROUP BY r.id, r.items, r.payload_bytes"
    )
    assert not [row for row in units if (row[1], row[2]) != (row[3], row[4])]
    requests = conn.fetch_all(
        "SELECT r.request_id, r.status, r.accepted_items, r.processed_items, r.failed_items, COALESCE(SUM(j.status ="
        " 2), 0), COALESCE(SUM(j.status IN (3, 4)), 0) FROM wp_novel_ingest_requests r"
        " JOIN wp_novel_ingest_jobs j ON j.request_id = r.request_id"
        " GROUP BY r.request_id, r.status, r.accepted_items, r.processed_items, r.failed_items"
    )
    for request_id, status, accepted, processed, failed, done, gave_up in requests:
        assert (processed, failed) == (done, gave_up), request_id
        state = ingest_requests.status_of(accepted, processed, failed)
        allowed = {state, "queued"} if state == "processing" else {state}
        assert ingest_requests.STATUSES[status] in allowed, request_id


def reads(conn: PlainConnection, work: Callable[[], object]) -> int:
    """How many index entries and rows the server reads for a piece of work."""

    def so_far() -> int:
        return sum(int(value) for _, value in conn.fetch_all("SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'"))

    looking = -so_far() + so_far()
    before = so_far()
    work()
    return so_far() - before - looking
