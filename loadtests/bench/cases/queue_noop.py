"""Jobs that do nothing, through the queue: accepted in batches of 300, claimed, completed, counted."""

import asyncio
import contextlib
import hashlib
import itertools
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from loadtests.bench import own_database, pipeline
from loadtests.bench.case import Bench, Bounded, Reading, Step
from runtime.settings import Settings
from schema.connection import connect
from store import ingest_jobs, ingest_requests, payloads, pool
from store.connection import Connection
from store.ingest_requests import NewRequest
from store.jobs import Job
from store.payloads import Item, StoryFrame
from store.pool import Pool
from worker.handler import Applied, Done, Outcome
from worker.loop import QueueLoop, Shared
from worker.membership import Membership

MOST_MICROSECONDS = 200  # 5,000 a second
BATCH = 300
LOOPS = 2


class Nothing:
    """A handler that has nothing to do."""

    job_type = payloads.STORIES

    async def prepare(self, pool: Pool, jobs: Sequence[Job]) -> None:
        return None

    async def apply(self, conn: Connection, jobs: Sequence[Job]) -> Applied:
        return Applied([Done(job) for job in jobs])

    async def committed(self, pool: Pool, outcomes: Sequence[Outcome]) -> Collection[str]:
        return ()


async def measure(bench: Bench, *, times: int, step: Step) -> Reading:
    """Enqueue and work at the same time, in one process, until all is done; `times` counts batches."""
    with pipeline.stage(bench) as reset:
        reset()
        settings = own_database.beside(bench, pipeline.SUFFIX).settings
        connections = pool.from_settings(settings.database)
        try:
            with _member(settings) as membership:
                await _through(connections, membership, settings, _batches(10), step=lambda _: None)
                started = asyncio.get_running_loop().time()
                items = await _through(connections, membership, settings, _batches(times), step=step)
                seconds = asyncio.get_running_loop().time() - started
        finally:
            await connections.close()
    note = f"{items / seconds:,.0f} jobs/s."
    return Reading(figure=seconds / items * 1e6, base=MOST_MICROSECONDS, notes=(note,))


@contextlib.contextmanager
def _member(settings: Settings) -> Iterator[Membership]:
    membership = Membership(settings.database, kind="bench", lease_seconds=settings.worker.lease_seconds)
    membership.join()
    try:
        yield membership
    finally:
        membership.leave()


async def _through(
    connections: Pool, membership: Membership, settings: Settings, batches: Sequence[payloads.Blob], *, step: Step
) -> int:
    stop, shared = asyncio.Event(), Shared()
    settings = replace(settings, worker=replace(settings.worker, poll_seconds=0.01))
    loops = [
        asyncio.create_task(QueueLoop(connections, Nothing(), membership, shared, stop, settings=settings).run())
        for _ in range(LOOPS)
    ]
    for blob in batches:
        await _push(connections, blob)
        membership.pulse()
        step(1)
    with connect(settings.database) as looking:
        await pipeline.finished(looking)
    stop.set()
    await asyncio.gather(*loops)
    return BATCH * len(batches)


async def _push(connections: Pool, blob: payloads.Blob) -> None:
    await connections.transaction(lambda conn: _enqueue(conn, blob))


def _batches(count: int) -> list[payloads.Blob]:
    numbers = itertools.count()
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def item(index: int) -> Item:
        name = f"s{next(numbers)}"
        frame = payloads.encode(StoryFrame(source_story_id=name, updated_at_source=at, slug=name, title="T"))
        return Item(index, name, hashlib.sha256(frame).digest(), frame)

    return [payloads.Blob(tuple(item(index) for index in range(BATCH))) for _ in range(count)]


async def _enqueue(conn: Connection, blob: payloads.Blob) -> None:
    request_id, key = str(uuid.uuid4()), str(uuid.uuid4())
    sha256 = hashlib.sha256(blob.content).digest()
    new = NewRequest(
        request_id=request_id,
        source="bench",
        job_type=payloads.STORIES,
        idempotency_key=key,
        total_items=BATCH,
        accepted_items=BATCH,
        payload_sha256=sha256,
        response=b"{}",
        key_id="bench",
    )
    await ingest_requests.insert(conn, new)
    await ingest_jobs.enqueue(
        conn, [(blob, sha256)], job_type=payloads.STORIES, source="bench", request_id=request_id, idempotency_key=key
    )


CASES = [
    Bounded(
        name="queue.noop",
        title="Time of a job that does nothing, from its acceptance to its completion, against 1/5,000 s",
        unit="µs",
        base_unit="µs",
        measure=measure,
        at_most=1.0,
        times=200,
        quick_times=40,
    )
]
