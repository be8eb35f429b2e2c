"""Works the queue: claims units, applies them in sets, and writes what became of each item.

A claim takes up to `limit` items; they are applied in sets, each in one transaction that has the effects, the jobs' new
states and the end of the leases. When a set fails, it is run again with a savepoint around each half, and halves of
halves, so that one poison item never costs its neighbours an attempt. A database that is away costs nobody an attempt:
the set waits. A set that fails as a whole, time and again, goes back as if a worker had died of it, and so returns in
ever smaller pieces. What was claimed but not begun when a stop comes goes back as it was.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from runtime import logs
from runtime.settings import Settings
from store import errors, events, jobs, recounts, rescues, story_rows, units
from store.connection import Connection
from store.jobs import Job, Verdict
from store.pool import Pool
from store.units import LeaseLost, Unit
from worker import metrics, verdicts
from worker.handler import Applied, Handler
from worker.membership import Membership
from worker.resting import FIRST_WAIT_SECONDS, Patience, rest
from worker.rotation import Rotation

log = logs.get(__name__)

DEFAULT_LIMIT = 600
# Of one transaction.
MAX_SET_ITEMS = 600
MAX_SET_BYTES = 8 << 20
MAX_UNITS = 256
# Times that a set may fail as a whole, while the database is there, before it is taken for the cause.
MAX_FAILURES = 3
MAX_LOGGED_CHARACTERS = 500
# Something is due, but another worker is just taking it.
CONTENDED_SECONDS = 0.01

Apply = Callable[[Connection, Sequence[Job]], Awaitable[Applied]]
Note = Callable[[Sequence[Verdict]], None]
Ring = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class Shared:
    """What the loops of one process have in common."""

    rotation: Rotation = field(default_factory=Rotation)
    held: set[int] = field(default_factory=set)
    """Units that one of them has in hand."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who has it looks at the queue, and waits if it is empty: one of them at a time."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody has queued something, or it is time to stop."""
    has_unknown: bool = False
    """Whether a claim may have been committed of which we did not hear."""


async def _no_bell(job_type: str) -> None:
    return None


class QueueLoop:
    """One of the sets in flight of a process."""

    def __init__(
        self,
        pool: Pool,
        handler: Handler,
        membership: Membership,
        shared: Shared,
        stop: asyncio.Event,
        *,
        settings: Settings,
        limit: int = DEFAULT_LIMIT,
        note: Note = lambda _: None,
        ring: Ring = _no_bell,
    ) -> None:
        self._pool = pool
        self._handler = handler
        self._membership = membership
        self._shared = shared
        self._stop = stop
        self._settings = settings
        self._limit = limit
        self._note = note
        self._ring = ring
        self._units_at_once = 2

    async def run(self, *, drain: bool = False) -> None:
        """Work until the stop, or with `drain` until nothing is due."""
        while (claimed := await self._next(drain=drain)) is not None:
            await self._work_off(*claimed)

    async def step(self) -> int:
        """One claim's worth of work; returns how many items it took, 0 if nothing was due."""
        worker_id = self._membership.worker_id
        _, claimed = await self._claim(worker_id)
        return await self._work_off(claimed, worker_id)

    async def _next(self, *, drain: bool) -> tuple[list[Unit], int] | None:
        """What to do next, as soon as there is something; None when it is over."""
        patience = Patience()
        async with self._shared.turn:
            while not self._stop.is_set():
                self._shared.wake.clear()
                if not self._membership.is_current:  # perhaps we were taken for dead: the next beat tells
                    self._membership.doubt()
                    await rest(self._stop, FIRST_WAIT_SECONDS)
                    continue
                worker_id = self._membership.worker_id
                try:
                    due, claimed = await self._claim(worker_id)
                except errors.StoreError as error:
                    log.warning("jobs.not_claimed", error=repr(error))
                    await rest(self._stop, patience.seconds())
                    continue
                if claimed:
                    return claimed, worker_id
                if drain and not due:
                    return None
                patience.restore()
                longest = CONTENDED_SECONDS if due else self._settings.worker.poll_seconds
                # Each worker a little differently, so that they do not all come at once.
                await rest(self._shared.wake, longest * random.uniform(0.5, 1.0))  # noqa: S311
        return None

    async def _work_off(self, claimed: Sequence[Unit], worker_id: int) -> int:
        """Apply what was claimed; what a stop leaves unstarted goes back. Returns how many items were claimed."""
        items = _items(claimed)
        waiting = sets(claimed)
        try:
            while waiting and not self._stop.is_set():
                await self._work(waiting.pop(0), worker_id)
        finally:
            await self._give_back([unit for some in waiting for unit in some], worker_id)
            self._shared.held.difference_update(unit.id for unit in claimed)
        return items

    async def _claim(self, worker_id: int) -> tuple[list[str], list[Unit]]:
        """Sources that have something due, and what we took."""
        started = time.perf_counter()
        job_type = self._handler.job_type

        async def work(conn: Connection) -> tuple[list[str], list[Unit]]:
            due = await units.due_sources(conn, job_type)
            claimed = await units.claim(
                conn,
                self._shared.rotation.order(due),
                job_type=job_type,
                worker_id=worker_id,
                max_items=self._limit,
                max_units=self._units_at_once,
            )
            return due, claimed

        if self._shared.has_unknown:
            await self._pool.transaction(lambda conn: self._drop_unknown(conn, worker_id))
            self._shared.has_unknown = False
        try:
            due, claimed = await self._pool.transaction(work)
        except errors.CommitUncertain:
            self._shared.has_unknown = True
            raise
        if claimed:
            metrics.CLAIM_SECONDS.labels(job_type).observe(time.perf_counter() - started)
            metrics.CLAIMED.labels(job_type).inc(_items(claimed))
            self._shared.held.update(unit.id for unit in claimed)
            self._shared.rotation.serve([unit.source for unit in claimed], waiting=due)
            mean = _items(claimed) / len(claimed)
            self._units_at_once = max(1, min(MAX_UNITS, round(self._limit / max(mean, 1))))
        return due, claimed

    async def _drop_unknown(self, conn: Connection, worker_id: int) -> None:
        """Give back what turns out to be ours though we never heard of it."""
        held = await units.held(conn, worker_id=worker_id)
        unknown = [unit for unit in held if unit.id not in self._shared.held]
        await units.give_back(conn, unknown, worker_id=worker_id)

    async def _work(self, claimed: list[Unit], worker_id: int) -> None:
        """Apply a set, whatever happens to the database meanwhile."""
        patience, failures = Patience(), 0
        while claimed:
            started = time.perf_counter()
            try:
                await self._apply(claimed, worker_id)
            except (LeaseLost, errors.CommitUncertain) as error:
                if isinstance(error, LeaseLost):
                    metrics.FENCED.inc()
                    self._membership.doubt()
                log.warning("jobs.set_interrupted", error=type(error).__name__, units=[unit.id for unit in claimed])
                ours = await self._still_ours(claimed, worker_id)
                # A job of it has ended though the lease is ours.
                failures += isinstance(error, LeaseLost) and len(ours) == len(claimed)
                claimed = ours
            except errors.DatabaseUnavailable as error:
                log.warning("jobs.database_away", error=str(error))
                if await rest(self._stop, patience.seconds()):
                    return
                # Others have a connection, we lose ours again and again: it is the set that does it.
                failures += _is_cut_off(error) and await self._is_reachable()
            except Exception as error:  # noqa: BLE001  what no single item can be blamed for must not stop the queue
                log.error("jobs.set_not_written", items=_items(claimed), error=repr(error)[:MAX_LOGGED_CHARACTERS])
                if await rest(self._stop, patience.seconds()):
                    return
                failures += 1
            else:
                seconds = time.perf_counter() - started
                metrics.APPLY_SECONDS.labels(self._handler.job_type).observe(seconds)
                return
            if failures >= MAX_FAILURES and await self._crash(claimed, worker_id):
                return

    async def _apply(self, claimed: Sequence[Unit], worker_id: int) -> None:
        async with self._pool.reading() as conn:
            loaded = await jobs.load(conn, claimed)
        try:
            await self._handler.prepare(self._pool, loaded)
            applied, written = await self._transaction(claimed, loaded, worker_id, self._handler.apply)
        except (LeaseLost, errors.CommitUncertain, errors.DatabaseUnavailable):
            raise
        except Exception as error:  # noqa: BLE001  whatever it is: find out which item does it
            metrics.BISECTED.labels(self._handler.job_type).inc()
            log.warning("jobs.set_failed", items=len(loaded), error=repr(error)[:MAX_LOGGED_CHARACTERS])
            applied, written = await self._transaction(claimed, loaded, worker_id, self._apply_halves)
        self._count(written)
        try:
            for job_type in await self._handler.committed(self._pool, applied.outcomes):
                await self._ring(job_type)
        except (errors.StoreError, errors.ServerRefused) as error:
            log.warning("jobs.after_commit_failed", error=repr(error)[:MAX_LOGGED_CHARACTERS])

    async def _transaction(
        self, claimed: Sequence[Unit], loaded: Sequence[Job], worker_id: int, apply: Apply
    ) -> tuple[Applied, list[Verdict]]:
        """Effects, what became of each job, and the end of the leases: all of it or nothing."""
        settings = self._settings

        async def work(conn: Connection) -> tuple[Applied, list[Verdict]]:
            await units.end_leases(conn, claimed, worker_id=worker_id)
            applied = await apply(conn, loaded)
            if len(applied.outcomes) != len(loaded):  # such an item would be lost without a sound
                raise RuntimeError("the handler did not say of each item what became of it")
            written = verdicts.of(applied.outcomes, settings.worker)
            await jobs.write(conn, written, payload_minutes=settings.retention.payload_minutes)
            window = settings.worker.recount_window_seconds
            await recounts.touch(conn, sorted(applied.touched), window_seconds=window)
            await events.append(conn, applied.events)
            return applied, written

        return await self._pool.transaction(work)

    async def _apply_halves(self, conn: Connection, some: Sequence[Job], depth: int = 0) -> Applied:
        """Apply what can be applied: when some items fail, each half of them is tried on its own."""
        await conn.savepoint(depth)
        try:
            return await self._handler.apply(conn, some)
        except Exception as error:
            if conn.aborted is not None or not conn.is_reusable:
                raise  # the whole transaction is gone
            await conn.rollback_to(depth)
            if len(some) == 1:
                log.error("job.failed", job_id=some[0].id, error=repr(error)[:MAX_LOGGED_CHARACTERS])
                return Applied([verdicts.unexpected(some[0], error)])
        middle = len(some) // 2
        applied = await self._apply_halves(conn, some[:middle], depth + 1)
        applied += await self._apply_halves(conn, some[middle:], depth + 1)
        return applied

    async def _still_ours(self, claimed: Sequence[Unit], worker_id: int) -> list[Unit]:
        """Those of these units that we still hold: not those that are finished, or that others have taken over."""
        while not self._stop.is_set():
            try:
                held = await self._pool.transaction(lambda conn: units.held(conn, worker_id=worker_id))
            except errors.StoreError:
                await rest(self._stop, FIRST_WAIT_SECONDS)
            else:
                ours = {unit.id for unit in held}
                return [unit for unit in claimed if unit.id in ours]
        return []

    async def _is_reachable(self) -> bool:
        try:
            async with self._pool.reading() as conn:
                await story_rows.now(conn)
        except errors.StoreError:
            return False
        return True

    async def _crash(self, claimed: Sequence[Unit], worker_id: int) -> bool:
        """Give a set back as if a worker had died of it: so it comes back in ever smaller pieces."""
        log.error("jobs.set_given_up", units=[unit.id for unit in claimed])

        async def work(conn: Connection) -> rescues.Rescued:
            return await rescues.bring_back(
                conn,
                worker_id,
                only={unit.id for unit in claimed},
                max_crashes=self._settings.worker.max_crashes,
                payload_minutes=self._settings.retention.payload_minutes,
            )

        try:
            await self._pool.transaction(work)
        except (LeaseLost, errors.StoreError) as error:
            log.warning("jobs.not_given_back", units=len(claimed), error=repr(error)[:MAX_LOGGED_CHARACTERS])
            return False
        return True

    async def _give_back(self, unstarted: Sequence[Unit], worker_id: int) -> None:
        if not unstarted:
            return
        try:
            await self._pool.transaction(lambda conn: units.give_back(conn, unstarted, worker_id=worker_id))
        except (LeaseLost, errors.StoreError) as error:  # then they are rescued
            log.warning("jobs.not_given_back", units=len(unstarted), error=repr(error)[:MAX_LOGGED_CHARACTERS])
        else:
            metrics.GIVEN_BACK.labels(self._handler.job_type).inc(len(unstarted))
            log.info("jobs.given_back", units=len(unstarted))

    def _count(self, written: Sequence[Verdict]) -> None:
        self._note(written)
        for (job_type, source), counts in verdicts.tally(written).items():
            for outcome, count in counts.items():
                metrics.ENDED.labels(job_type, outcome).inc(count)
            log.info("jobs.ended", job_type=job_type, source=source, **counts)


def _items(claimed: Sequence[Unit]) -> int:
    return sum(unit.items for unit in claimed)


def _is_cut_off(error: errors.DatabaseUnavailable) -> bool:
    """Whether a connection broke. A locked table, a full disk or no free connection is nothing that a set does."""
    return error.__cause__ is not None and errors.is_uncertain(error.__cause__)


def sets(claimed: Sequence[Unit]) -> list[list[Unit]]:
    """What is applied in one transaction each: neither too many items nor too many bytes."""
    found: list[list[Unit]] = []
    items = size = 0
    for unit in claimed:
        if not found or items + unit.items > MAX_SET_ITEMS or size + unit.payload_bytes > MAX_SET_BYTES:
            found.append([])
            items = size = 0
        found[-1].append(unit)
        items, size = items + unit.items, size + unit.payload_bytes
    return found
