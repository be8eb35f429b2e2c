"""Batches in the queue, workers that claim and end them, and what the tables say of it."""

import hashlib
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from schema.connection import Connection as PlainConnection
from store import ingest_jobs, ingest_requests, jobs, payloads, rescues, units, workers
from store.connection import Connection
from store.ingest_requests import NewRequest
from store.jobs import COMPLETED, DEAD, FAILED, QUEUED, Job, Verdict
from store.payloads import Item, StoryFrame
from store.pool import Pool
from store.rescues import Rescued
from store.units import Unit
from store.workers import Identity

SOURCE = "truyen-a"
PAYLOAD_MINUTES = 60
MAX_CRASHES = 3

Fate = Callable[[Job], Verdict]
AfterIt = Callable[[Connection], Awaitable[None]]


# -- what waits -----------------------------------------------------------------------------------------


def item(index: int) -> Item:
    frame = payloads.encode(
        StoryFrame(source_story_id=f"s{index}", updated_at_source=datetime(2026, 1, 1, tzinfo=UTC), title=f"T{index}")
    )
    return Item(index, f"s{index}", hashlib.sha256(frame).digest(), frame)


async def enqueue(
    pool: Pool,
    *,
    indexes: Iterable[int] = (0, 1, 2),
    source: str = SOURCE,
    job_type: str = payloads.STORIES,
    max_blob_bytes: int = payloads.MAX_BLOB_BYTES,
) -> str:
    """Accept a batch, as the door does; an index that is left out was refused. Returns the request's id."""
    items = [item(index) for index in indexes]
    blobs = payloads.blobs(items, max_bytes=max_blob_bytes)
    new = NewRequest(
        request_id=str(uuid.uuid4()),
        source=source,
        job_type=job_type,
        idempotency_key=uuid.uuid4().hex,
        total_items=items[-1].index + 1,
        accepted_items=len(items),
        payload_sha256=bytes(32),
        response=b"{}",
        key_id="key",
    )

    async def work(conn: Connection) -> None:
        await ingest_requests.insert(conn, new)
        await ingest_jobs.enqueue(
            conn,
            [(blob, hashlib.sha256(blob.content).digest()) for blob in blobs],
            job_type=job_type,
            source=source,
            request_id=new.request_id,
            idempotency_key=new.idempotency_key,
        )

    await pool.transaction(work)
    return new.request_id


def add_story(conn: PlainConnection, ref: str, *, source: str = SOURCE) -> None:
    conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)"
        " VALUES (%s, %s, %s, 'T', UTC_TIMESTAMP(), UTC_TIMESTAMP())",
        (source, ref, ref),
    )


# -- workers --------------------------------------------------------------------------------------------


def identity(*, host: str = "host", pid: int = 1) -> Identity:
    return Identity(
        host=host, boot_id=str(uuid.uuid4()), pid_namespace=2**40, pid=pid, process_start=secrets.randbits(40)
    )


def join(conn: PlainConnection) -> int:
    return workers.join(conn, identity(), kind="stories")


async def claim(
    pool: Pool,
    worker_id: int,
    *,
    sources: Sequence[str] | None = None,
    job_type: str = payloads.STORIES,
    max_items: int = 1000,
    max_units: int = 256,
) -> list[Unit]:
    """Claim of these sources; if there are none, of all that have something due."""

    async def work(conn: Connection) -> list[Unit]:
        due = await units.due_sources(conn, job_type) if sources is None else sources
        return await units.claim(
            conn, due, job_type=job_type, worker_id=worker_id, max_items=max_items, max_units=max_units
        )

    return await pool.transaction(work)


async def load(pool: Pool, claimed: Sequence[Unit]) -> list[Job]:
    async with pool.reading() as conn:
        return await jobs.load(conn, claimed)


async def end(
    pool: Pool, claimed: Sequence[Unit], worker_id: int, fate: Fate, *, then: AfterIt | None = None
) -> list[Verdict]:
    """Apply units, as a worker does: the end of the leases, then what became of each job."""
    verdicts = [fate(job) for job in await load(pool, claimed)]
    await write(pool, claimed, worker_id, verdicts, then=then)
    return verdicts


async def write(
    pool: Pool,
    claimed: Sequence[Unit],
    worker_id: int,
    verdicts: Sequence[Verdict],
    *,
    then: AfterIt | None = None,
    through: Callable[[Connection], Any] = lambda conn: conn,
) -> None:
    """Write what became of jobs; `through` may put something between the store and the connection."""

    async def work(conn: Connection) -> None:
        conn = through(conn)
        await units.end_leases(conn, claimed, worker_id=worker_id)
        await jobs.write(conn, verdicts, payload_minutes=PAYLOAD_MINUTES)
        if then is not None:
            await then(conn)

    await pool.transaction(work)


async def give_back(pool: Pool, claimed: Sequence[Unit], worker_id: int) -> None:
    await pool.transaction(lambda conn: units.give_back(conn, claimed, worker_id=worker_id))


async def release(pool: Pool, *refs: str, source: str = SOURCE) -> int:
    return await pool.transaction(lambda conn: units.release_waiting(conn, [(source, ref) for ref in refs]))


async def rescue(pool: Pool, worker_id: int, *, silent_seconds: float = 0.0) -> Rescued | None:
    return await pool.transaction(
        lambda conn: rescues.rescue(
            conn,
            worker_id,
            silent_seconds=silent_seconds,
            max_crashes=MAX_CRASHES,
            payload_minutes=PAYLOAD_MINUTES,
        )
    )


# -- fates ----------------------------------------------------------------------------------------------


def done(job: Job) -> Verdict:
    return Verdict(job=job, status=COMPLETED, attempts=job.unit.attempts + 1)


def stale(job: Job) -> Verdict:
    return Verdict(job=job, status=COMPLETED, attempts=job.unit.attempts + 1, is_stale=True)


def failed(job: Job, *, code: str = "slug_conflict", message: str = "It is taken.") -> Verdict:
    return Verdict(job=job, status=FAILED, attempts=job.unit.attempts + 1, code=code, message=message)


def dead(job: Job, *, code: str = "apply_failed", message: str = "It fails.") -> Verdict:
    return Verdict(job=job, status=DEAD, attempts=job.unit.attempts + 1, code=code, message=message)


def again(job: Job, *, delay_seconds: float = 0.0, story: str | None = None) -> Verdict:
    return Verdict(
        job=job,
        status=QUEUED,
        attempts=job.unit.attempts + 1,
        code="story_not_found" if story else "apply_failed",
        message="Not yet.",
        delay_seconds=delay_seconds,
        waiting_for=story,
    )


# -- what the tables say --------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Queued:
    """A row of ready or leases, without its id and times."""

    first: int
    last: int
    items: int
    attempts: int
    crashes: int
    waiting_for: str | None = None


@dataclass(frozen=True)
class Counts:
    status: str
    processed: int
    failed: int
    last_error: str | None = None


def ready(conn: PlainConnection) -> list[Queued]:
    rows = conn.fetch_all(
        "SELECT first_item, last_item, items, attempts, crashes, waiting_for FROM wp_novel_ingest_ready"
        " ORDER BY payload_blob_id, first_item"
    )
    return [Queued(*row) for row in rows]


def leased(conn: PlainConnection, worker_id: int) -> list[Queued]:
    rows = conn.fetch_all(
        "SELECT first_item, last_item, items, attempts, crashes FROM wp_novel_ingest_leases"
        " WHERE worker_id = %s ORDER BY payload_blob_id, first_item",
        (worker_id,),
    )
    return [Queued(*row) for row in rows]


def statuses(conn: PlainConnection, request_id: str) -> list[str]:
    """Of the jobs of a request, in the order of the batch."""
    rows = conn.fetch_all(
        "SELECT IF(is_stale, 'stale', ELT(status + 1, 'queued', 'processing', 'completed', 'failed', 'dead'))"
        " FROM wp_novel_ingest_jobs WHERE request_id = %s ORDER BY item_index",
        (request_id,),
    )
    return [status for (status,) in rows]


def attempts(conn: PlainConnection, request_id: str) -> list[int]:
    rows = conn.fetch_all(
        "SELECT attempts FROM wp_novel_ingest_jobs WHERE request_id = %s ORDER BY item_index", (request_id,)
    )
    return [count for (count,) in rows]


def counts(conn: PlainConnection, request_id: str) -> Counts:
    ((status, processed, failed_items, error),) = conn.fetch_all(
        "SELECT status, processed_items, failed_items, last_error FROM wp_novel_ingest_requests WHERE request_id = %s",
        (request_id,),
    )
    return Counts(ingest_requests.STATUSES[status], processed, failed_items, error)


def uncovered(conn: PlainConnection) -> list[tuple[int, int, int]]:
    """Jobs that are lost or doubled: id, status, in how many units. A queued one is in one, others in none."""
    return [
        (row[0], row[1], row[2])
        for row in conn.fetch_all(
            """
            SELECT j.id, j.status, COUNT(u.payload_blob_id) AS covered
            FROM wp_novel_ingest_jobs j LEFT JOIN (
                SELECT payload_blob_id, first_item, last_item FROM wp_novel_ingest_ready
                UNION ALL SELECT payload_blob_id, first_item, last_item FROM wp_novel_ingest_leases
            ) u ON u.payload_blob_id = j.payload_blob_id AND j.item_index BETWEEN u.first_item AND u.last_item
            GROUP BY j.id, j.status HAVING covered <> (j.status = 0)
            """
        )
    ]


def make_due(conn: PlainConnection) -> None:
    """As if every wait were over."""
    conn.execute("UPDATE wp_novel_ingest_ready SET next_run_at = LEAST(next_run_at, UTC_TIMESTAMP(6))")


def silence(conn: PlainConnection, worker_id: int, *, seconds: int = 3600) -> None:
    """As if the worker had not been heard of for so long."""
    conn.execute(
        "UPDATE wp_novel_workers SET heartbeat_at = heartbeat_at - INTERVAL %s SECOND WHERE id = %s",
        (seconds, worker_id),
    )
