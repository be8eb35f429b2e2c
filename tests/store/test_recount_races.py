"""No touch is lost, at whatever moment it comes, whoever dies and whoever is late.

Two workers and a writer of content go on by one statement at a time, in every order that we can think of. At each
moment each story either has the counts of its chapters or is in the queue, as all others see them.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from runtime.addresses import DatabaseAddress
from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import recounts
from store.connection import Connection
from tests.store.counted_stories import Chapter, make_story, queued, stored
from tests.store.counting import counted
from tests.store.recounting import LEASE, WINDOW
from tests.store.stepped import GIVE_UP_SECONDS, GRACE_SECONDS, Clock, SteppedPool, Turns, stepped_pool
from worker.recounts import Recounts

STORIES = 3
# More than a schedule takes on a busy machine: what waits longer waits for somebody who stands still.
LOCK_SECONDS = 8
WORKERS = ("1", "2")

# One statement, so that it sees everything as of one moment.
_FORGOTTEN = """
    SELECT s.id FROM wp_novel_stories s LEFT JOIN wp_novel_story_recount_queue q ON q.story_id = s.id
    WHERE q.story_id IS NULL
        AND s.chapter_count <> (SELECT COUNT(*) FROM wp_novel_chapters c WHERE c.story_id = s.id)
"""
_NEW_CHAPTER = """
    INSERT INTO wp_novel_chapters (story_id, chapter_no, slug, title, word_count, created_at, updated_at)
    VALUES (%s, %s, %s, 'C', 100, '2026-01-01', '2026-01-01')
"""
_TOUCHED = """
    INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, updated_at)
    SELECT id, %s, %s, %s FROM wp_novel_stories
"""
_TABLES = ("wp_novel_story_recount_queue", "wp_novel_chapters", "wp_novel_stories")


class Party:
    """A worker or a writer: what it does goes on by a statement at a time."""

    def __init__(self, pool: SteppedPool) -> None:
        self.pool = pool
        self._task: asyncio.Task[Any] | None = None

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    @property
    def is_inside(self) -> bool:
        """Whether it has a transaction open."""
        sent = self.pool.turns.statements[:-1]
        return self.is_busy and sent.count("START TRANSACTION") > sent.count("COMMIT")

    async def begin(self, work: Callable[[], Any]) -> None:
        """Come to the first statement."""
        self.pool.turns.start()
        self._task = asyncio.create_task(work())
        await self._settle(await self.pool.turns.arrive(self._task))

    async def go(self, *, may_wait: bool = False) -> None:
        if self._task is not None:
            await self._settle(await self.pool.turns.next(self._task, may_wait=may_wait))

    async def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _settle(self, goes_on: bool) -> None:
        if not goes_on and self._task is not None:
            await self._task
            self._task = None


class Stage:
    """Stories, those who work on them, and the clock."""

    def __init__(
        self, conn: PlainConnection, clock: Clock, parties: list[Party], own: SteppedPool, settings: Settings
    ) -> None:
        for table in _TABLES:
            conn.execute(f"DELETE FROM {table}")
        self._conn = conn
        self._own = own
        self.clock = clock
        self.writer = parties.pop()
        self.workers = dict(zip(WORKERS, parties, strict=True))
        self._settings = replace(settings.worker, recount_window_seconds=WINDOW, lease_seconds=LEASE)
        self._recounts = {name: self._hired(name, name) for name in self.workers}
        self._names = dict(zip(WORKERS, WORKERS, strict=True))
        self._numbers = itertools.count(len(WORKERS) + 1)
        self._dead: list[str] = []
        self._beside: list[asyncio.Task[int]] = []
        self.stories = [make_story(conn, chapters=[Chapter(Decimal(0))]) for _ in range(STORIES)]
        conn.execute(_TOUCHED, (clock.after(0),) * 3)
        self.chapters = dict.fromkeys(self.stories, 1)
        """The model: how many chapters have been committed."""

    def _hired(self, party: str, name: str) -> Recounts:
        return Recounts(self.workers[party].pool, worker_id=int(name), limit=2, settings=self._settings)

    async def work(self, worker: str) -> None:
        """One statement of a worker. It waits for no writer, at most for the claim of another worker."""
        party = self.workers[worker]
        if party.is_busy:
            await party.go(may_wait=self._is_somebody_inside(but=party) or self._is_giving_back())
        else:
            await party.begin(self._recounts[worker].step)

    async def write(self, story_id: int, *, asked: bool = False) -> None:
        """One statement of the writer; it may wait for who has the story just then."""
        if self.writer.is_busy:
            await self.writer.go(may_wait=self._is_somebody_inside() or self._is_giving_back())
            return

        number = next(self._numbers)

        async def change(conn: Connection) -> None:
            await conn.execute(_NEW_CHAPTER, (story_id, number, number))
            if asked:
                await recounts.ask(conn, [story_id])
            else:
                await recounts.touch(conn, [story_id], window_seconds=0)

        async def write() -> None:
            await self.writer.pool.transaction(change)
            self.chapters[story_id] += 1

        await self.writer.begin(write)

    async def kill(self, worker: str) -> None:
        """The process dies, and another comes in its place."""
        await self.workers[worker].kill()
        self._dead.append(self._names[worker])
        self._names[worker] = str(next(self._numbers))
        self._recounts[worker] = self._hired(worker, self._names[worker])

    async def bury(self) -> None:
        """Somebody sees who has died."""
        while self._dead:
            await self._give_back(self._dead.pop())

    async def take_for_dead(self, worker: str) -> None:
        """Somebody gives back what a worker has claimed that only stands still."""
        await self._give_back(self._names[worker])

    async def _give_back(self, name: str) -> None:
        """It may wait for the claim of a worker too: then the others go on beside it."""
        giving = asyncio.create_task(self._own.transaction(lambda conn: recounts.give_back(conn, worker=name)))
        self._beside.append(giving)
        await asyncio.wait({giving}, timeout=GRACE_SECONDS if self._is_somebody_inside() else None)

    def _is_giving_back(self) -> bool:
        return not all(giving.done() for giving in self._beside)

    def _is_somebody_inside(self, but: Party | None = None) -> bool:
        return any(party.is_inside for party in self.workers.values() if party is not but)

    async def __aenter__(self) -> "Stage":
        return self

    async def __aexit__(self, *_: object) -> None:
        for party in (*self.workers.values(), self.writer):
            await party.kill()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def check(self) -> None:
        assert self._conn.fetch_all(_FORGOTTEN) == []

    async def end(self) -> None:
        """Everybody finishes, and what is still in the queue becomes due: then all counts are right."""
        await self._finish()
        self.check()
        for _ in range(3):
            self.clock.tick(LEASE + WINDOW)
            await self.work("1")
            await self._finish()
        assert queued(self._conn) == {}
        assert {story_id: stored(self._conn, story_id)[0] for story_id in self.stories} == self.chapters

    async def _finish(self) -> None:
        """First the workers, who wait for no writer."""
        async with asyncio.timeout(GIVE_UP_SECONDS):
            while busy := [name for name, party in self.workers.items() if party.is_busy]:
                for worker in busy:
                    await self.work(worker)
            await asyncio.gather(*self._beside)
            self._beside.clear()
            while self.writer.is_busy:
                await self.writer.go()


@pytest.fixture
async def stage(
    address: DatabaseAddress, conn: PlainConnection, test_settings: Settings
) -> AsyncIterator[Callable[[], Stage]]:
    """Makes stages, one after the other, on the same connections."""
    async with _pools(address) as (clock, pools):
        before = _given_up()
        yield lambda: Stage(conn, clock, [Party(pool) for pool in pools[:-1]], pools[-1], test_settings)
        assert _given_up() == before  # nobody waited for a lock in vain


@asynccontextmanager
async def _pools(address: DatabaseAddress) -> AsyncIterator[tuple[Clock, list[SteppedPool]]]:
    clock = Clock()
    async with (
        stepped_pool(address, clock, Turns(is_free=False), lock_seconds=LOCK_SECONDS) as first,
        stepped_pool(address, clock, Turns(is_free=False), lock_seconds=LOCK_SECONDS) as second,
        stepped_pool(address, clock, Turns(is_free=False), lock_seconds=LOCK_SECONDS) as writer,
        stepped_pool(address, clock, lock_seconds=LOCK_SECONDS) as own,
    ):
        yield clock, [first, second, writer, own]


def _given_up() -> float:
    return sum(counted("novel_database_retries_total", error=error) for error in ("1205", "1213"))


# Statements of a recount that is claimed and counted but not yet written, of a whole one, and of a change.
COUNTED, WHOLE, CHANGE = 8, 14, 5


# -- every moment of one recount ---------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True], ids=["touched", "asked for"])
async def test_a_touch_from_any_moment_to_any_other_is_never_lost(stage: Callable[[], Stage], asked: bool) -> None:
    """The change and the touch at one moment of the recount, COMMIT at the same or any later one."""
    for touched in range(1, WHOLE + 1):
        for length in (0, 1, 2, 4, WHOLE):
            async with stage() as here:
                story_id = here.stories[0]
                for moment in range(1, touched + length + 1):
                    await here.work("1")
                    if moment <= touched:
                        assert here.workers["1"].is_busy == (moment < WHOLE)
                    if moment == touched:
                        for _ in range(CHANGE - 1):  # as far as COMMIT
                            await here.write(story_id, asked=asked)
                    here.check()
                await here.write(story_id)
                await here.end()


# -- everything in any order -------------------------------------------------------------------------------

workers = st.sampled_from(WORKERS)
stories = st.integers(0, STORIES - 1)
lengths = st.sampled_from([1, 2, 3, COUNTED, WHOLE])
change_lengths = st.sampled_from([1, 2, CHANGE])
ACTIONS = st.one_of(
    st.tuples(st.just("work"), workers, lengths),
    st.tuples(st.just("work"), workers, lengths),
    st.tuples(st.just("write"), stories, change_lengths),
    st.tuples(st.just("write"), stories, change_lengths),
    st.tuples(st.just("ask"), stories, change_lengths),
    st.tuples(st.just("tick"), st.sampled_from([1, WINDOW, LEASE + 1])),
    st.tuples(st.just("kill"), workers),
    st.tuples(st.just("bury")),
    st.tuples(st.just("take for dead"), workers),
)


@hypothesis_settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(actions=st.lists(ACTIONS, min_size=5, max_size=25))
# One that is late, and what it has not counted is touched as often as when it claimed.
@example(
    [("work", "1", COUNTED), ("tick", LEASE + 1), ("work", "2", WHOLE), ("write", 0, CHANGE), ("work", "1", WHOLE)]
)
# The same without a wait: it was taken for dead, and claims again within the second.
@example(
    [("work", "1", COUNTED), ("take for dead", "1"), ("work", "2", WHOLE), ("write", 0, CHANGE), ("work", "1", WHOLE)]
)
async def test_no_order_of_steps_loses_a_touch(stage: Callable[[], Stage], actions: list[Any]) -> None:
    async with stage() as here:
        for name, *arguments in actions:
            match name:
                case "work":
                    for _ in range(arguments[1]):
                        await here.work(arguments[0])
                        here.check()
                case "write" | "ask":
                    for _ in range(arguments[1]):
                        await here.write(here.stories[arguments[0]], asked=name == "ask")
                case "tick":
                    here.clock.tick(arguments[0])
                case "kill":
                    await here.kill(arguments[0])
                case "bury":
                    await here.bury()
                case "take for dead":
                    await here.take_for_dead(arguments[0])
            here.check()
        await here.end()
