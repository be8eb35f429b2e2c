"""One worker process: its loops, its heartbeat, what it does beside them, and how it ends.

It ends at a signal, after `max_runtime_seconds`, when it has grown past `memory_limit_bytes`, or with `drain` once
nothing is due. Each time it finishes the sets under way, gives back what it has claimed and not begun, and signs off.
Whoever starts it learns from its exit code whether it wants to be started again.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from runtime import logs, loop_watch
from runtime.settings import Settings
from runtime.shutdown import Stop
from store import errors, minutes, payloads, pool, recounts, units, wakeups
from store.connection import Connection
from store.pool import Pool
from store.redis_link import RedisLink
from worker.chapters import Chapters
from worker.handler import Handler
from worker.loop import QueueLoop, Shared
from worker.maintenance import Maintenance
from worker.membership import Membership
from worker.recounts import Recounts
from worker.rescuing import Rescuer
from worker.resting import rest
from worker.stories import Stories
from worker.tallies import Tallies

log = logs.get(__name__)

STORIES: Final = "stories"
CHAPTERS: Final = "chapters"
RECOUNTS: Final = "recounts"
JOB_TYPES: Final = {STORIES: payloads.STORIES, CHAPTERS: payloads.CHAPTERS}

Work = Coroutine[Any, Any, None]
Running = asyncio.Task[None]

PULSE_SECONDS = 0.5
LOOK_SECONDS = 2.0
TALLY_SECONDS = 5.0
MEMORY_SECONDS = 0.5
CANCEL_SECONDS = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Connections beside those of the loops: heartbeats have their own.
SIDE_CONNECTIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a process is for."""

    kind: str
    loops: int = 1
    limit: int
    """Items of one claim."""
    drain: bool = False
    max_runtime_seconds: float | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    reason: str

    @property
    def wants_to_be_started_again(self) -> bool:
        return self.reason == "memory"


async def run(settings: Settings, task: Task, *, stop: Stop, on_ready: Callable[[], None] = lambda: None) -> Ended:
    """Work until it is time to end; says why."""
    process = Process(settings, task)
    return await process.run(stop, on_ready)


class Process:
    def __init__(self, settings: Settings, task: Task) -> None:
        self._settings = settings
        self._task = task
        database = replace(
            settings.database,
            pool_size=task.loops + SIDE_CONNECTIONS,
            statement_seconds=settings.worker.statement_seconds,
        )
        self._pool: Pool = pool.from_settings(database, idle_transaction_seconds=settings.worker.lease_seconds)
        self._redis = RedisLink(settings.redis)
        self._stop = asyncio.Event()
        self._shared = Shared()
        self._tallies = Tallies()
        self._membership = Membership(settings.database, kind=task.kind, lease_seconds=settings.worker.lease_seconds)
        self._reason = ""
        self._counts_as = 0
        """Our first worker id, under which stories are counted even when we were taken for dead."""

    async def run(self, stop: Stop, on_ready: Callable[[], None]) -> Ended:
        await asyncio.to_thread(self._membership.join)
        self._counts_as = self._membership.worker_id
        beside: list[Running] = []
        try:
            await self._look_once(self._rescuer().look)
            on_ready()
            beside += [asyncio.create_task(some) for some in self._beside(stop)]
            await self._work(beside)
        finally:
            await _cancel(beside)
            await self._sign_off()
        return Ended(self._reason or "drained")

    def _end(self, reason: str) -> None:
        if not self._stop.is_set():
            log.info("worker.ending", reason=reason, worker_id=self._membership.worker_id)
            self._reason = reason
            self._stop.set()
            self._shared.wake.set()

    # -- the work -----------------------------------------------------------------------------------------

    async def _work(self, beside: Sequence[Running]) -> None:
        """Run the loops until they have ended by themselves or by a stop. What any task dies of is raised."""
        loops = {asyncio.create_task(loop) for loop in self._loops()}
        stopping = asyncio.create_task(_wait(self._stop))
        try:
            running = {*loops, *beside, stopping}
            while loops & running and stopping in running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            # A stop: what is under way gets its time.
            late = loops & running
            if late:
                done, late = await asyncio.wait(late, timeout=self._settings.worker.stop_seconds)
                for task in done:
                    task.result()
            if late:
                log.error("worker.cut_off", loops=len(late))
        finally:
            await _cancel([*loops, stopping])

    def _loops(self) -> Iterator[Work]:
        task, settings = self._task, self._settings
        for _ in range(task.loops):
            if task.kind == RECOUNTS:
                counting = Recounts(self._pool, worker_id=self._counts_as, limit=task.limit, settings=settings.worker)
                yield counting.run(self._stop, drain=task.drain)
                continue
            loop = QueueLoop(
                self._pool,
                self._handler(),
                self._membership,
                self._shared,
                self._stop,
                settings=settings,
                limit=task.limit,
                note=self._tallies.add,
                ring=self._ring,
            )
            yield loop.run(drain=task.drain)

    def _handler(self) -> Handler:
        if self._task.kind == STORIES:
            return Stories()
        return Chapters(max_versions=self._settings.worker.chapter_versions)

    async def _ring(self, job_type: str) -> None:
        await wakeups.ring(self._redis, job_type)

    # -- beside it ----------------------------------------------------------------------------------------

    def _beside(self, stop: Stop) -> Iterator[Work]:
        task = self._task
        yield self._hear(stop)
        yield self._pulse()
        yield self._look_after()
        yield self._write_tallies()
        if task.kind in JOB_TYPES:
            yield wakeups.listen(self._redis, JOB_TYPES[task.kind], self._shared.wake.set)
        if task.max_runtime_seconds is not None:
            yield self._end_after(task.max_runtime_seconds)
        if task.memory_limit_bytes is not None:
            yield self._end_above(task.memory_limit_bytes)

    async def _hear(self, stop: Stop) -> None:
        await stop.wait_async()
        self._end(stop.reason)

    async def _pulse(self) -> None:
        """Show the heart that the event loop goes round."""
        async with loop_watch.watching():
            while True:
                self._membership.pulse()
                await asyncio.sleep(PULSE_SECONDS)

    def _rescuer(self) -> Rescuer:
        return Rescuer(self._pool, settings=self._settings, is_steady=lambda: self._membership.is_steady)

    async def _look_after(self) -> None:
        """Rescue what others held, and keep the house in order."""
        rescuer = self._rescuer()
        maintenance = Maintenance(
            self._pool,
            self._redis,
            holder=str(self._membership.worker_id),
            settings=self._settings,
            is_stopping=self._stop.is_set,
        )
        while True:
            await asyncio.sleep(LOOK_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311  not all at once
            await self._look_once(rescuer.look)
            await self._look_once(maintenance.look)

    async def _look_once(self, look: Callable[[], Awaitable[object]]) -> None:
        try:
            await look()
        except Exception as error:  # noqa: BLE001  it is tried again soon; our own work does not depend on it
            log.warning("worker.not_looked_after", error=repr(error))

    async def _write_tallies(self) -> None:
        while True:
            await asyncio.sleep(TALLY_SECONDS)
            await self._flush_tallies()

    async def _flush_tallies(self) -> None:
        rows = self._tallies.take()
        if not rows:
            return
        try:
            await self._pool.transaction(lambda conn: minutes.add(conn, rows))
        except errors.CommitUncertain:
            pass  # perhaps they are written: rather too few than twice
        except (errors.StoreError, errors.ServerRefused) as error:
            log.warning("worker.tallies_not_written", error=repr(error))
            self._tallies.put_back(rows)

    async def _end_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._end("runtime")

    async def _end_above(self, limit_bytes: int) -> None:
        while not await rest(self._stop, MEMORY_SECONDS):
            if (used := resident_bytes()) > limit_bytes:
                log.info("worker.too_large", resident_bytes=used, limit_bytes=limit_bytes)
                self._end("memory")

    # -- the end ------------------------------------------------------------------------------------------

    async def _sign_off(self) -> None:
        """Give back whatever is still held, and leave."""
        worker_id = self._membership.worker_id

        async def give_back(conn: Connection) -> int:
            held = await units.held(conn, worker_id=worker_id)
            await units.give_back(conn, held, worker_id=worker_id)
            return len(held) + await recounts.give_back(conn, worker=str(self._counts_as))

        try:
            if count := await self._pool.transaction(give_back):
                log.info("worker.gave_back", rows=count)
        except (errors.StoreError, units.LeaseLost) as error:
            log.warning("worker.not_given_back", error=repr(error))  # others rescue it
        await self._flush_tallies()
        await asyncio.to_thread(self._membership.leave)
        await self._pool.close()
        await self._redis.close()


def resident_bytes() -> int:
    """Memory that this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _cancel(tasks: Sequence[Running]) -> None:
    """Again and again: redis-py takes the end of a task that is just connecting for a failure to connect."""
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        ended, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)
        for task in ended:
            if not task.cancelled() and (error := task.exception()):
                log.debug("worker.task_failed", error=repr(error))
