"""Loops of a worker within the test: with a membership, and with handlers that go wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from runtime.settings import Settings
from store.connection import Connection
from store.jobs import Job
from store.pool import Pool
from tests.processes import wait_for
from worker.chapters import Chapters
from worker.handler import Applied, Handler, Outcome
from worker.loop import QueueLoop, Shared
from worker.membership import Membership

Work = Callable[[Connection], Awaitable[Any]]
Transaction = Callable[[Work], Awaitable[Any]]


def with_worker(settings: Settings, **changed: Any) -> Settings:
    return replace(settings, worker=replace(settings.worker, **changed))


@contextmanager
def joined(settings: Settings) -> Iterator[Membership]:
    membership = Membership(settings.database, kind="chapters", lease_seconds=settings.worker.lease_seconds)
    membership.join()
    try:
        yield membership
    finally:
        membership.leave()


class Wrapped:
    """A handler that does what it is told before each `apply`."""

    def __init__(self, handler: Handler | None = None) -> None:
        self._handler = handler or Chapters(max_versions=0)
        self.job_type = self._handler.job_type
        self.sizes: list[int] = []
        """Items of each call of `apply`."""
        self.before: Callable[[Connection, Sequence[Job]], Awaitable[None]] = _nothing
        self.after: Callable[[Connection, Sequence[Job]], Awaitable[None]] = _nothing

    async def prepare(self, pool: Pool, jobs: Sequence[Job]) -> None:
        await self._handler.prepare(pool, jobs)

    async def apply(self, conn: Connection, jobs: Sequence[Job]) -> Applied:
        self.sizes.append(len(jobs))
        await self.before(conn, jobs)
        applied = await self._handler.apply(conn, jobs)
        await self.after(conn, jobs)
        return applied

    async def committed(self, pool: Pool, outcomes: Sequence[Outcome]) -> Collection[str]:
        return await self._handler.committed(pool, outcomes)


async def _nothing(conn: Connection, jobs: Sequence[Job]) -> None:
    return None


def make_loop(
    pool: Pool,
    membership: Membership,
    settings: Settings,
    *,
    handler: Handler | None = None,
    shared: Shared | None = None,
    stop: asyncio.Event | None = None,
    limit: int = 600,
) -> QueueLoop:
    return QueueLoop(
        pool,
        handler or Chapters(max_versions=0),
        membership,
        shared or Shared(),
        stop or asyncio.Event(),
        settings=settings,
        limit=limit,
    )


@pytest.fixture
async def membership(test_settings: Settings) -> AsyncIterator[Membership]:
    with joined(test_settings) as membership:
        yield membership


@contextmanager
def faults(monkeypatch: pytest.MonkeyPatch, pool: Pool, fault: Callable[[Transaction, Work], Awaitable[Any]]) -> Any:
    """Transactions of the pool go through `fault`, which may do them or not."""
    real = pool.transaction
    with monkeypatch.context() as patch:
        patch.setattr(pool, "transaction", lambda work: fault(real, work))
        yield


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_for, condition)


@asynccontextmanager
async def running(working: QueueLoop, stop: asyncio.Event, shared: Shared, **how: bool) -> AsyncIterator[None]:
    """The loop runs for the length of the block, and ends by a stop at its end."""
    task = asyncio.create_task(working.run(**how))
    try:
        yield
    finally:
        stop.set()
        shared.wake.set()
        await asyncio.wait_for(task, 30)
