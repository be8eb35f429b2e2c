"""Recount workers beside others: dead ones, late ones, two at a time, and a database that goes away."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from runtime.addresses import DatabaseAddress, parse_database
from runtime.settings import Settings, load
from schema.connection import Connection as PlainConnection
from store import pool as pools
from store.pool import Pool
from store.recounts import Dirty
from tests.store.counted_stories import (
    expire_claims,
    make_stories,
    queued,
)
from tests.store.counting import eventually
from tests.store.stepped import Clock, SteppedPool, stepped_pool
from tests.store.wire import Wire
from tests.worker.recounting import (
    LEASE,
    Hire,
    Interrupted,
    chapter_counts,
    claim,
    column,
    outcomes,
    since,
    touch,
    worker_settings,
)
from worker.recounts import Outcome, Recounts


@pytest.fixture
def address(environ: dict[str, str]) -> DatabaseAddress:
    return parse_database(environ["NOVEL_DATABASE_URL"])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def at(address: DatabaseAddress, clock: Clock) -> AsyncIterator[SteppedPool]:
    async with stepped_pool(address, clock) as pool:
        yield pool


@pytest.fixture
def hire(at: SteppedPool, test_settings: Settings) -> Hire:
    """Makes a worker whose time is the test's."""
    settings = worker_settings(test_settings)

    def hire(worker_id: int = 1, *, limit: int = 500, pool: Pool = at, kind: type[Recounts] = Recounts) -> Recounts:
        return kind(pool, worker_id=worker_id, limit=limit, settings=settings)

    return hire


# -- dead and late workers ---------------------------------------------------------------------------------


async def test_what_a_dead_worker_has_claimed_is_counted_after_its_lease(
    at: SteppedPool, conn: PlainConnection, clock: Clock, hire: Hire
) -> None:
    story_ids = make_stories(conn, 3)
    await touch(at, *story_ids)
    await claim(at, "99")
    worker = hire()
    clock.tick(LEASE)
    assert await worker.step() == 0
    clock.tick(1)
    assert await worker.step() == 3
    assert (queued(conn), chapter_counts(conn, story_ids)) == ({}, [1, 1, 1])


async def test_a_worker_that_is_late_writes_nothing_and_takes_less_the_next_time(
    at: SteppedPool, conn: PlainConnection, clock: Clock, hire: Hire
) -> None:
    story_ids = make_stories(conn, 4)
    await touch(at, *story_ids)
    late = hire(1, limit=4, kind=Interrupted)

    async def taken_over(_: Sequence[Dirty]) -> None:
        clock.tick(LEASE + 1)
        assert len(await claim(at, "2")) == 4

    late.happens = taken_over
    before = outcomes()
    assert await late.step() == 4
    assert chapter_counts(conn, story_ids) == [0] * 4
    assert {mark.split("/")[0] for mark in column(conn, "locked_by").values()} == {"2"}
    assert since(before) == {"lost": 4}

    async def nothing(_: Sequence[Dirty]) -> None:
        return

    late.happens = nothing
    clock.tick(LEASE + 1)
    assert [await late.step() for _ in range(3)] == [2, 2, 0]
    assert chapter_counts(conn, story_ids) == [1] * 4


async def test_two_workers_never_count_a_story_at_the_same_time_nor_twice(
    pool: Pool, conn: PlainConnection, hire: Hire
) -> None:
    conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)"
        " SELECT 'a', seq, seq, 'T', UTC_TIMESTAMP(), UTC_TIMESTAMP() FROM seq_1_to_2000"
    )
    conn.execute(
        "INSERT INTO wp_novel_chapters (story_id, chapter_no, slug, title, created_at, updated_at)"
        " SELECT id, 1, 'c', 'C', UTC_TIMESTAMP(), UTC_TIMESTAMP() FROM wp_novel_stories"
    )
    story_ids = [row[0] for row in conn.fetch_all("SELECT id FROM wp_novel_stories ORDER BY id")]
    await touch(pool, *story_ids)
    at_work: set[int] = set()
    finished: list[int] = []
    shares: dict[Recounts, int] = {}
    both = asyncio.Barrier(2)

    class Watched(Recounts):
        async def _attempt(self, claimed: Sequence[Dirty]) -> Outcome:
            mine = {dirty.story_id for dirty in claimed}
            assert not mine & at_work
            at_work.update(mine)
            if self not in shares:
                await both.wait()  # both have claimed
            shares[self] = shares.get(self, 0) + len(mine)
            try:
                return await super()._attempt(claimed)
            finally:
                at_work.difference_update(mine)
                finished.extend(mine)

    workers = [hire(number, limit=150, pool=pool, kind=Watched) for number in (1, 2)]
    await asyncio.gather(*(worker.run(asyncio.Event(), drain=True) for worker in workers))
    assert sorted(finished) == story_ids
    assert len(shares) == 2
    assert queued(conn) == {}
    assert conn.fetch_all("SELECT chapter_count, cache_version, COUNT(*) FROM wp_novel_stories GROUP BY 1, 2") == [
        (1, 1, 2000)
    ]


# -- the loop ----------------------------------------------------------------------------------------------


async def test_the_loop_counts_what_comes_until_it_is_stopped(pool: Pool, conn: PlainConnection, hire: Hire) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(hire(pool=pool).run(stop))
    for _ in range(3):
        (story_id,) = make_stories(conn, 1)
        await touch(pool, story_id)
        await eventually(lambda: not queued(conn))
        assert chapter_counts(conn, [story_id]) == [1]
    stop.set()
    await running


@pytest.mark.parametrize("is_answered", [False, True], ids=["unsent", "unheard"])
@pytest.mark.parametrize(
    ("in_the_claim", "statement"),
    [
        (True, b"START TRANSACTION"),
        (True, b"MIN(locked_at)"),
        (True, b"COMMIT"),
        (False, b"COUNT(c.id)"),
        (False, b"START TRANSACTION"),
        (False, b"DELETE q"),
        (False, b"COMMIT"),
    ],
)
async def test_a_connection_that_breaks_at_any_statement_loses_no_story(
    address: DatabaseAddress,
    environ: dict[str, str],
    conn: PlainConnection,
    pool: Pool,
    hire: Hire,
    statement: bytes,
    in_the_claim: bool,
    is_answered: bool,
) -> None:
    story_ids = make_stories(conn, 5)
    await touch(pool, *story_ids)
    stop = asyncio.Event()
    async with Wire(address).laid() as wire:
        through_wire = pools.from_settings(load(environ | {"NOVEL_DATABASE_URL": wire.address.url}).database)

        async def cut(_: Sequence[Dirty] = ()) -> None:
            if not wire.cuts:
                wire.cut_answer_to, wire.cut_before = (statement, None) if is_answered else (None, statement)

        worker = hire(pool=through_wire, kind=Interrupted)
        worker.happens = cut
        if in_the_claim:
            await cut()
        running = asyncio.create_task(worker.run(stop))
        await eventually(lambda: wire.cuts)
        if in_the_claim and is_answered and statement == b"COMMIT":
            await eventually(lambda: all(column(conn, "locked_by").values()))
            await asyncio.to_thread(expire_claims, conn)  # nobody knows what was claimed: the lease has to end
        await eventually(lambda: not queued(conn))
        stop.set()
        await running
        await through_wire.close()
    assert wire.cuts == 1
    assert chapter_counts(conn, story_ids) == [1] * 5
