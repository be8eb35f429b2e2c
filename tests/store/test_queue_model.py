"""Whatever happens to the queue, in whatever order: its tables agree with a simple model after every step."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import dead_letters, payloads, pool, replays, rescues, units, workers
from store.connection import Connection
from store.dead_letters import Wanted
from store.jobs import DEAD, FAILED, Job, Verdict
from store.payloads import StoryFrame
from store.pool import Pool
from store.units import LeaseLost, Unit
from tests.store import queue_factory as factory
from tests.store import queue_model as model

T = TypeVar("T")

MAX_ATTEMPTS = 3
LEASE_SECONDS = 120
SOURCES = ("truyen-a", "truyen-b")
STORIES = ("x", "y")
WHO = st.integers(0, 11)
MANY = 1000
MAX_ITEMS = st.sampled_from((MANY, 4, 1))
MAX_UNITS = st.sampled_from((MANY, 2, 1))
FATES = st.lists(st.sampled_from(("done", "stale", "soon", "later", *STORIES, "give up")), min_size=1, max_size=6)
# Multiples of these never meet, so that nothing depends on how long a test takes.
DELAYS = {"soon": 100.0, "later": 1000.0, "x": 100.0, "y": 1000.0}
PASSING = (150, 2000)

_TABLES = (
    *("ingest_ready", "ingest_leases", "ingest_jobs", "ingest_requests", "ingest_payload_blobs"),
    *("workers", "stories", "sync_logs"),
)
_DUE = """
    SELECT source, payload_blob_id, first_item, items, crashes FROM wp_novel_ingest_ready
    WHERE next_run_at <= UTC_TIMESTAMP(6) ORDER BY next_run_at, id
"""


@dataclass
class Worker:
    id: int
    believes: dict[int, Unit] = field(default_factory=dict)
    """What it takes for its own, by its ids."""
    is_registered: bool = True
    is_silent: bool = False

    def forget(self, some: list[Unit]) -> None:
        for unit in some:
            self.believes.pop(unit.id, None)


class RolledBack(Exception):
    pass


class QueueMachine(RuleBasedStateMachine):
    runner: ClassVar["asyncio.Runner"]
    pool: ClassVar[Pool]
    conn: ClassVar[PlainConnection]

    def __init__(self) -> None:
        super().__init__()
        for table in _TABLES:
            self.conn.execute(f"DELETE FROM wp_novel_{table}")
        self.model = model.Queue(max_crashes=factory.MAX_CRASHES)
        self.workers: list[Worker] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.joins()
        self.joins()
        self.is_pushed(SOURCES[0], list(range(6)), payloads.MAX_BLOB_BYTES)

    # -- the door -------------------------------------------------------------------------------------------

    @rule(
        source=st.sampled_from(SOURCES),
        indexes=st.lists(st.integers(0, 9), min_size=1, max_size=7, unique=True).map(sorted),
        max_blob_bytes=st.sampled_from((100, payloads.MAX_BLOB_BYTES)),
    )
    def is_pushed(self, source: str, indexes: list[int], max_blob_bytes: int) -> None:
        work = factory.enqueue(self.pool, indexes=indexes, source=source, max_blob_bytes=max_blob_bytes)
        request = model.Request(self.run(work), source)
        rows = self.conn.fetch_all(
            "SELECT payload_blob_id, item_index, payload_size_bytes FROM wp_novel_ingest_jobs"
            " WHERE request_id = %s ORDER BY item_index",
            (request.id,),
        )
        request.items = [model.Item(request, *row) for row in rows]
        assert [item.index for item in request.items] == indexes
        self.model.enqueue(request)

    # -- workers --------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.workers) < 4)
    @rule()
    def joins(self) -> None:
        self.workers.append(Worker(factory.join(self.conn)))

    @precondition(lambda self: self.model.ready)
    @rule(who=WHO, max_items=MAX_ITEMS, max_units=MAX_UNITS, turned=st.booleans())
    def claims(self, who: int, max_items: int, max_units: int, turned: bool) -> None:
        worker = self._pick(self.workers, who)
        due = self.conn.fetch_all(_DUE)
        sources = self.model.due_sources()
        assert self.run(self._due_sources()) == sources
        if turned:
            sources.reverse()
        work = factory.claim(self.pool, worker.id, sources=sources, max_items=max_items, max_units=max_units)
        claimed = self.run(work)
        assert bool(claimed) == bool(due)
        for source in sources:
            of_source = [(blob_id, first) for its_source, blob_id, first, *_ in due if its_source == source]
            taken = [(unit.blob_id, unit.first) for unit in claimed if unit.source == source]
            assert taken == of_source[: len(taken)]
            assert len(taken) <= max_units
        if len(claimed) > 1:
            assert sum(unit.items for unit in claimed) <= max_items
            assert not any(unit.crashes for unit in claimed)
        if max_items == MANY and max_units == MANY and not any(crashes for *_, crashes in due):
            assert len(claimed) == len(due)
        self.model.claim([(unit.blob_id, unit.first) for unit in claimed], worker.id)
        worker.believes |= {unit.id: unit for unit in claimed}

    @precondition(lambda self: any(worker.believes for worker in self.workers))
    @rule(who=WHO, count=st.integers(1, 3), fates=FATES, hears=st.booleans())
    def ends(self, who: int, count: int, fates: list[str], hears: bool) -> None:
        """A worker that does not hear of its COMMIT goes on to believe that the units are its own."""
        worker = self._pick([worker for worker in self.workers if worker.believes], who)
        some = list(worker.believes.values())[:count]
        ending = factory.end(self.pool, some, worker.id, _chosen(fates))
        if not self._are_held(some, worker):
            self._is_refused(ending, worker, some)
            return
        self.model.end([(unit.blob_id, unit.first) for unit in some], self.run(ending))
        if hears:
            worker.forget(some)

    @precondition(lambda self: self.model.due_sources())
    @rule(who=WHO, max_units=MAX_UNITS, fates=FATES)
    def claims_and_ends(self, who: int, max_units: int, fates: list[str]) -> None:
        self.claims(who, MANY, max_units, False)
        self.tables_agree_with_the_model()
        self.ends(who, 1, fates, True)

    @precondition(lambda self: self.model.leases)
    @rule(which=st.integers(0, 99), fates=FATES)
    def ends_and_is_rolled_back(self, which: int, fates: list[str]) -> None:
        worker_id, _ = self._pick(list(self.model.leases.values()), which)
        held = list(self._worker(worker_id).believes.values())

        async def fails(conn: Connection) -> None:
            raise RolledBack

        # What it took for its own may be another's by now: then it gets no further than that.
        with pytest.raises((RolledBack, LeaseLost)):
            self.run(factory.end(self.pool, held, worker_id, _chosen(fates), then=fails))

    @precondition(lambda self: any(worker.believes for worker in self.workers))
    @rule(who=WHO, count=st.integers(1, 3), hears=st.booleans())
    def gives_back(self, who: int, count: int, hears: bool) -> None:
        worker = self._pick([worker for worker in self.workers if worker.believes], who)
        some = list(worker.believes.values())[-count:]
        giving = factory.give_back(self.pool, some, worker.id)
        if not self._are_held(some, worker):
            self._is_refused(giving, worker, some)
            return
        self.run(giving)
        self.model.give_back([(unit.blob_id, unit.first) for unit in some])
        if hears:
            worker.forget(some)

    @precondition(lambda self: any(worker.is_silent for worker in self.workers))
    @rule(who=WHO)
    def beats(self, who: int) -> None:
        worker = self._pick([worker for worker in self.workers if worker.is_silent], who)
        assert workers.beat(self.conn, worker.id) == worker.is_registered
        worker.is_silent = False

    @rule(who=WHO)
    def falls_silent(self, who: int) -> None:
        worker = self._pick(self.workers, who)
        factory.silence(self.conn, worker.id)
        worker.is_silent = True

    @precondition(lambda self: self.model.leases)
    @rule(which=st.integers(0, 99))
    def leaves(self, which: int) -> None:
        """Without giving anything back, as if that had failed."""
        worker_id, _ = self._pick(list(self.model.leases.values()), which)
        workers.leave(self.conn, worker_id)
        self._worker(worker_id).is_registered = False

    # -- those who look after them --------------------------------------------------------------------------

    @rule(who=WHO)
    def is_looked_after(self, who: int) -> None:
        """Others rescue it, if it has been silent for long enough."""
        self._is_rescued(self._pick(self.workers, who))

    @precondition(lambda self: self.model.due_sources())
    @rule(max_items=MAX_ITEMS, max_units=MAX_UNITS, deaths=st.integers(1, 3))
    def newcomers_claim_and_die(self, max_items: int, max_units: int, deaths: int) -> None:
        for _ in range(deaths):
            if self.model.due_sources():
                self.joins()
                self.claims(-1, max_items, max_units, False)
                self.tables_agree_with_the_model()
                self.falls_silent(-1)
                self._is_rescued(self.workers[-1])
                self.tables_agree_with_the_model()
                dead = self.workers.pop()
                if len(self.workers) < 4 and deaths == 1:
                    self.workers.append(dead)  # it was only asleep

    @rule()
    def orphans_come_back(self) -> None:
        present = {worker.id for worker in self.workers if worker.is_registered}
        holders = {holder for holder, _ in self.model.leases.values()}
        orphans = self.run(self._orphans())
        assert orphans == sorted(holders - present)
        for worker_id in orphans:
            rescued = self.run(self._bring_back(worker_id))
            assert (rescued.units, rescued.dead) == self.model.crash(worker_id)

    @precondition(lambda self: any(unit.waiting_for for unit in self.model.ready.values()))
    @rule(which=st.integers(0, 99), comes=st.booleans())
    def story_is_looked_for(self, which: int, comes: bool) -> None:
        waiting = [unit for unit in self.model.ready.values() if unit.waiting_for]
        unit = self._pick(waiting, which)
        source, ref = unit.source, str(unit.waiting_for)
        if comes and (source, ref) not in self.model.stories:
            factory.add_story(self.conn, ref, source=source)
            self.model.stories.add((source, ref))
        released = self.run(factory.release(self.pool, ref, "another", source=source))
        assert released == self.model.release(source, ref)

    @precondition(lambda self: any(unit.due_in > 0 for unit in self.model.ready.values()))
    @rule(seconds=st.sampled_from(PASSING))
    def time_passes(self, seconds: int) -> None:
        for table in ("ready", "leases"):
            self.conn.execute(
                f"UPDATE wp_novel_ingest_{table} SET next_run_at = next_run_at - INTERVAL %s SECOND", (seconds,)
            )
        self.model.pass_time(seconds)

    @precondition(lambda self: any(item.status in (FAILED, DEAD) for item in self.model.items()))
    @rule(code=st.sampled_from((None, None, "slug_conflict", "worker_crashed")), piece=st.sampled_from((2, 300)))
    def is_replayed(self, code: str | None, piece: int) -> None:
        wanted = Wanted(until=dead_letters.now(self.conn), error_code=code)
        found = dead_letters.find(self.conn, wanted)
        dead = [item for item in self.model.items() if _is_wanted(item, code)]
        assert len(found.job_ids) == len(dead)
        run = replays.begin(self.conn, wanted, found, operator="an operator")
        for start in range(0, len(dead), piece):
            run = replays.queue(self.conn, run, found.job_ids[start : start + piece], wait=_nothing)
            self.model.replay(dead[start : start + piece])
        assert (run.queued, run.payload_gone, run.taken) == (len(dead), 0, 0)

    # -- what has to hold -----------------------------------------------------------------------------------

    @invariant()
    def tables_agree_with_the_model(self) -> None:
        assert model.stored(self.conn) == self.model.rows()

    @invariant()
    def no_item_is_lost_or_doubled(self) -> None:
        assert factory.uncovered(self.conn) == []

    # -- helpers --------------------------------------------------------------------------------------------

    def _pick(self, some: Sequence[T], which: int) -> T:
        return some[which % len(some)]

    def _worker(self, worker_id: int) -> Worker:
        return next(worker for worker in self.workers if worker.id == worker_id)

    def _are_held(self, some: list[Unit], worker: Worker) -> bool:
        rows = self.conn.fetch_all("SELECT id FROM wp_novel_ingest_leases WHERE worker_id = %s", (worker.id,))
        return {unit.id for unit in some} <= {lease_id for (lease_id,) in rows}

    def _is_refused(self, work: Coroutine[Any, Any, Any], worker: Worker, some: list[Unit]) -> None:
        with pytest.raises(LeaseLost):
            self.run(work)
        worker.forget(some)

    def _is_rescued(self, worker: Worker) -> None:
        silent = [each.id for each in self.workers if each.is_registered and each.is_silent]
        assert self.run(self._silent()) == sorted(silent)
        rescued = self.run(factory.rescue(self.pool, worker.id, silent_seconds=LEASE_SECONDS))
        if worker.id not in silent:
            assert rescued is None
            return
        assert rescued is not None
        assert (rescued.units, rescued.dead) == self.model.crash(worker.id)
        worker.is_registered = False

    async def _due_sources(self) -> list[str]:
        async with self.pool.reading() as conn:
            return await units.due_sources(conn, payloads.STORIES)

    async def _silent(self) -> list[int]:
        async with self.pool.reading() as conn:
            return await workers.silent(conn, lease_seconds=LEASE_SECONDS)

    async def _orphans(self) -> list[int]:
        async with self.pool.reading() as conn:
            return await rescues.orphans(conn)

    async def _bring_back(self, worker_id: int) -> rescues.Rescued:
        return await self.pool.transaction(
            lambda conn: rescues.bring_back(
                conn, worker_id, max_crashes=factory.MAX_CRASHES, payload_minutes=factory.PAYLOAD_MINUTES
            )
        )


def _chosen(fates: list[str]) -> factory.Fate:
    """A fate for each job in turn."""
    in_turn = cycle(fates)
    return lambda job: _verdict(job, next(in_turn))


def _verdict(job: Job, fate: str) -> Verdict:
    assert isinstance(job.frame, StoryFrame)
    assert job.frame.source_story_id == f"s{job.index}"
    if fate in DELAYS:
        if job.unit.attempts + 1 >= MAX_ATTEMPTS:
            return factory.dead(job)
        return factory.again(job, delay_seconds=DELAYS[fate], story=fate if fate in STORIES else None)
    return {"done": factory.done, "stale": factory.stale, "give up": factory.failed}[fate](job)


def _is_wanted(item: model.Item, code: str | None) -> bool:
    if code is None:
        return item.status == DEAD
    return item.status in (DEAD, FAILED) and item.code == code


def _nothing(_: float) -> None:
    return None


def test_the_queue_agrees_with_a_simple_model(test_settings: Settings, conn: PlainConnection) -> None:
    with asyncio.Runner() as runner:

        class Machine(QueueMachine):
            pass

        Machine.runner, Machine.conn = runner, conn
        Machine.pool = pool.from_settings(test_settings.database)
        try:
            run_state_machine_as_test(
                Machine,
                settings=settings(
                    max_examples=30,
                    stateful_step_count=25,
                    deadline=None,
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
                ),
            )
        finally:
            runner.run(Machine.pool.close())
