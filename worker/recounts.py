"""Counts stories again whose chapters or ratings have changed. `store.recounts` explains the protocol."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from runtime import logs
from runtime.worker_settings import WorkerSettings
from store import errors, recounts, story_counts
from store.connection import Connection
from store.pool import Pool
from store.recounts import Dirty
from store.story_counts import Counts
from worker import backoff
from worker.resting import Patience, rest

log = logs.get(__name__)

# After the first, second, ... failure of a story; the last for all further ones.
RETRY_SECONDS = tuple(min(30.0 * 2**failures, 3600.0) for failures in range(8))
# How long a story is left to who has locked it, before it is counted again.
BUSY_SECONDS = 2.0

RECOUNTS = Counter("novel_recounts_total", "Stories that were claimed for a recount", labelnames=("outcome",))
SECONDS = Histogram(
    "novel_recount_seconds",
    "Time from the claim of a set of stories to its end",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a set. A story counts once; what is `changed` or `unchanged` may have been touched meanwhile."""

    changed: int = 0
    unchanged: int = 0
    vanished: int = 0
    busy: int = 0
    """Somebody works on them: for later."""
    lost: int = 0
    """Our lease had run out, and another has taken them over: nothing was written."""


class Recounts:
    """The loop of one recount worker."""

    def __init__(self, pool: Pool, *, worker_id: int, limit: int = 500, settings: WorkerSettings) -> None:
        self._pool = pool
        self._worker = str(worker_id)
        self._limit = limit
        self._size = limit
        self._settings = settings
        self._claimed: dict[int, Dirty] = {}
        """What we may still have in the queue under our name."""

    async def run(self, stop: asyncio.Event, *, drain: bool = False) -> None:
        """Count until the stop, or with `drain` until nothing is due."""
        patience = Patience()
        while not stop.is_set():
            try:
                claimed = await self.step()
            except errors.StoreError as error:
                log.warning("recount.interrupted", error=repr(error))
                await rest(stop, patience.seconds())
                continue
            patience.restore()
            if claimed:
                continue
            if drain:
                return
            await rest(stop, self._settings.poll_seconds * random.uniform(0.5, 1.0))  # noqa: S311

    async def step(self) -> int:
        """Count a set of stories that are due; returns how many were claimed."""
        await self._free_left_over()
        claimed = await self._claim()
        if claimed:
            self._claimed |= {dirty.story_id: dirty for dirty in claimed}
            with SECONDS.time():
                await self._recount(claimed)
        return len(claimed)

    async def _claim(self) -> list[Dirty]:
        lease_seconds = self._settings.lease_seconds

        async def work(conn: Connection) -> list[Dirty]:
            return await recounts.claim(conn, worker=self._worker, limit=self._size, lease_seconds=lease_seconds)

        try:
            return await self._pool.transaction(work)
        except errors.CommitUncertain as error:
            # If they are ours, we do not know which; others take them over when the lease ends.
            raise errors.DatabaseUnavailable("the connection broke during a claim") from error

    async def _recount(self, claimed: Sequence[Dirty]) -> None:
        """Count and write a set, or halve it until what cannot be counted is alone."""
        try:
            outcome = await self._attempt(claimed)
        except errors.DatabaseUnavailable:
            raise  # nothing is wrong with these stories: the next step lets go of them
        except errors.CommitUncertain:
            log.info("recount.uncertain", stories=len(claimed))  # likewise, where they are not done
        except Exception as error:  # noqa: BLE001  whatever it is, it must hold up no other story
            if len(claimed) == 1:
                await self._postpone(claimed[0], error)
                return
            middle = len(claimed) // 2
            await self._recount(claimed[:middle])
            await self._recount(claimed[middle:])
        else:
            self._note(outcome)

    async def _attempt(self, claimed: Sequence[Dirty]) -> Outcome:
        async with self._pool.reading() as conn:
            computed = await story_counts.compute(conn, [dirty.story_id for dirty in claimed])
        existing = {counts.story_id for counts in computed}
        window_seconds = self._settings.recount_window_seconds

        async def work(conn: Connection) -> tuple[Outcome, set[int]]:
            held = await recounts.hold(conn, claimed)
            written = await story_counts.write(conn, [counts for counts in computed if counts.story_id in held])
            vanished = held.keys() - existing
            done = [dirty for dirty in claimed if dirty.story_id in written.story_ids | vanished]
            await recounts.clear(conn, done, held, window_seconds=window_seconds)
            busy = held.keys() & existing - written.story_ids
            await recounts.free(conn, busy, wait_seconds=BUSY_SECONDS)
            left = await recounts.still_ours(conn, [dirty for dirty in claimed if dirty.story_id not in held])
            outcome = Outcome(
                changed=written.changed,
                unchanged=len(written.story_ids) - written.changed,
                vanished=len(vanished),
                busy=len(busy) + len(left),
                lost=len(claimed) - len(held) - len(left),
            )
            return outcome, left

        outcome, left = await self._pool.transaction(work)
        self._forget(claimed, keep=left)
        return outcome

    async def _postpone(self, dirty: Dirty, error: Exception) -> None:
        jitter = random.random()  # noqa: S311
        wait_seconds = backoff.delay_seconds(dirty.attempts + 1, RETRY_SECONDS, jitter=jitter)
        log.error(
            "recount.failed",
            story_id=dirty.story_id,
            attempts=dirty.attempts + 1,
            retry_seconds=round(wait_seconds),
            error=f"{type(error).__name__}: {error}",
        )

        async def work(conn: Connection) -> set[int]:
            if await recounts.hold(conn, [dirty]):
                await recounts.postpone(conn, dirty, wait_seconds=wait_seconds)
                return set()
            return await recounts.still_ours(conn, [dirty])

        left = await self._pool.transaction(work)
        self._forget([dirty], keep=left)
        RECOUNTS.labels("failed").inc()

    async def _free_left_over(self) -> None:
        """Let go of what an earlier step could not finish: the database went away, or somebody touched it just then."""
        if not self._claimed:
            return
        claimed = list(self._claimed.values())

        async def work(conn: Connection) -> set[int]:
            held = await recounts.hold(conn, claimed)
            await recounts.free(conn, held)
            return await recounts.still_ours(conn, claimed)

        left = await self._pool.transaction(work)
        self._forget(claimed, keep=left)

    def _forget(self, claimed: Sequence[Dirty], *, keep: set[int]) -> None:
        for dirty in claimed:
            if dirty.story_id not in keep:
                self._claimed.pop(dirty.story_id, None)

    def _note(self, outcome: Outcome) -> None:
        for name in Outcome.__slots__:
            if count := getattr(outcome, name):
                RECOUNTS.labels(name).inc(count)
        if outcome.lost:
            # Perhaps the set was too large for its lease: two workers could take it from each other for ever.
            log.warning("recount.lost", stories=outcome.lost)
            self._size = max(1, self._size // 2)
        else:
            self._size = min(self._limit, self._size * 2)


async def recount_now(pool: Pool, story_id: int) -> Counts | None:
    """Count one story at once, whatever the queue says about it. None: there is no such story."""

    async def work(conn: Connection) -> Counts | None:
        # Locked before it is counted: a worker that counts later also writes later.
        if not await story_counts.lock(conn, story_id):
            return None
        (counts,) = await story_counts.compute(conn, [story_id])
        await story_counts.write(conn, [counts])
        # And one that has counted earlier counts again.
        await recounts.outdate(conn, story_id)
        return counts

    return await pool.transaction(work)
