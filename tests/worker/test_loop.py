"""The loop of a worker: what it claims it finishes, gives back, or loses to whoever took it over; and nothing twice."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from runtime.settings import Settings
from schema.connection import Connection
from store import errors, rescues
from store.jobs import Job
from store.pool import Pool
from store.units import Unit
from tests.worker.batches import DONE, Ended, add_stories, all_ended, chapter, count, ended, push, story, waiting
from tests.worker.looping import Transaction, Work, Wrapped, faults, make_loop, membership, until
from worker import loop, metrics
from worker.chapters import Chapters
from worker.loop import Shared, sets
from worker.membership import Membership
from worker.stories import Stories

__all__ = ["membership"]

UNIT = Unit(1, "chapters_bulk", "a", "r", 1, 0, 0, 1, 100, 0, 0, datetime(2026, 1, 1), datetime(2026, 1, 1))


# -- sets ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 700), st.integers(1, 12 << 20)), max_size=40))
@examples(max_examples=100, deadline=None)
def test_sets_keep_every_unit_in_order_and_exceed_a_limit_only_for_a_unit_that_does(
    sizes: list[tuple[int, int]],
) -> None:
    claimed = [replace(UNIT, id=n, items=items, payload_bytes=size) for n, (items, size) in enumerate(sizes)]
    made = sets(claimed)
    assert [unit for some in made for unit in some] == claimed
    for some in made:
        assert some
        if len(some) > 1:
            assert sum(unit.items for unit in some) <= loop.MAX_SET_ITEMS
            assert sum(unit.payload_bytes for unit in some) <= loop.MAX_SET_BYTES


# -- claims ----------------------------------------------------------------------------------------------


async def test_what_is_claimed_is_done_and_counted_in_its_request(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    add_stories(conn)
    requests = [push(conn, [chapter(10 * n), chapter(10 * n + 1)]) for n in range(1, 4)]
    working = make_loop(pool, membership, test_settings)
    assert sum([await working.step(), await working.step(), await working.step()]) == 6
    assert [ended(conn, request_id) for request_id in requests] == [[DONE, DONE]] * 3
    assert conn.fetch_all("SELECT status, processed_items FROM wp_novel_ingest_requests") == [(2, 2)] * 3
    assert count(conn, "ingest_ready") == count(conn, "ingest_leases") == 0


async def test_many_small_units_are_claimed_more_at_a_time(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    add_stories(conn)
    for n in range(60):
        push(conn, [chapter(n + 1)])
    working = make_loop(pool, membership, test_settings)
    assert [await working.step() for _ in range(2)] == [2, 58]


async def test_a_claim_of_which_nobody_heard_is_given_back_before_the_next(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT of a claim went through, and its answer was lost."""
    add_stories(conn)
    request_id = push(conn, [chapter(1)])
    before = waiting(conn)
    working = make_loop(pool, membership, test_settings)

    async def lose_the_answer(real: Transaction, work: Work) -> Any:
        await real(work)
        raise errors.CommitUncertain("lost")

    with faults(monkeypatch, pool, lose_the_answer), pytest.raises(errors.CommitUncertain):
        await working.step()
    assert count(conn, "ingest_leases") == 1

    seen = []

    async def look(real: Transaction, work: Work) -> Any:
        result = await real(work)
        seen.append(waiting(conn))
        return result

    with faults(monkeypatch, pool, look):
        assert await working.step() == 1
    assert seen[0] == before  # as it was, to be claimed like any other
    assert ended(conn, request_id) == [DONE]


async def test_giving_back_a_claim_of_which_nobody_heard_leaves_what_another_set_in_flight_works_on(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_stories(conn)
    first = push(conn, [chapter(1)])
    shared, handler = Shared(), Wrapped()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold(pool: Pool, jobs: Sequence[Job]) -> None:
        begun.set()
        await go_on.wait()

    handler.prepare = hold  # type: ignore[method-assign]
    busy = make_loop(pool, membership, test_settings, handler=handler, shared=shared)
    working = asyncio.create_task(busy.step())
    await begun.wait()
    second = push(conn, [chapter(2)])
    shared.has_unknown = True
    assert await make_loop(pool, membership, test_settings, shared=shared).step() == 1
    go_on.set()
    await working
    assert handler.sizes == [1]
    assert ended(conn, first) == ended(conn, second) == [DONE]


async def test_who_may_have_been_taken_for_dead_claims_nothing_before_its_next_beat(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took under an id that is gone would be brought back as of a crash, though nobody died."""
    add_stories(conn)
    conn.execute("DELETE FROM wp_novel_workers")
    membership._last_beat -= test_settings.worker.lease_seconds + 1
    request_id = push(conn, [chapter(1)])
    before = membership.worker_id
    await make_loop(pool, membership, test_settings).run(drain=True)
    assert membership.worker_id != before
    assert ended(conn, request_id) == [DONE]
    assert count(conn, "workers", f"id = {membership.worker_id}") == 1


# -- leases that are lost --------------------------------------------------------------------------------


def take_over(conn: Connection, pool: Pool, membership: Membership) -> Callable[[], Awaitable[Any]]:
    """What a rescuer does with a worker that it takes for dead."""
    worker_id = membership.worker_id

    async def rescue() -> None:
        rescued = await pool.transaction(
            lambda conn: rescues.rescue(conn, worker_id, silent_seconds=0, max_crashes=5, payload_minutes=60)
        )
        assert rescued is not None

    return rescue


async def test_a_worker_that_was_taken_for_dead_writes_nothing_and_joins_anew(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1), chapter(2)])
    handler, before = Wrapped(), membership.worker_id
    fenced = metrics.FENCED._value.get()
    working = make_loop(pool, membership, test_settings, handler=handler)
    real = handler.prepare

    async def rescued_meanwhile(pool: Pool, jobs: Sequence[Job]) -> None:
        await take_over(conn, pool, membership)()
        await real(pool, jobs)

    handler.prepare = rescued_meanwhile  # type: ignore[method-assign]
    await working.step()
    assert handler.sizes == []  # the fence is before the first effect
    assert count(conn, "chapters") == count(conn, "events") == 0
    assert metrics.FENCED._value.get() == fenced + 1
    await until(lambda: membership.worker_id != before)
    handler.prepare = real  # type: ignore[method-assign]
    await working.step()
    assert [(item.status, item.attempts) for item in ended(conn, request_id)] == [("completed", 1)] * 2
    assert count(conn, "events") == 2


async def test_of_a_set_only_what_is_still_ours_is_done(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    add_stories(conn)
    requests = [push(conn, [chapter(n)]) for n in (1, 2)]
    handler = Wrapped()
    working = make_loop(pool, membership, test_settings, handler=handler)
    real = handler.prepare

    async def lose_one(pool: Pool, jobs: Sequence[Job]) -> None:
        conn.execute("DELETE FROM wp_novel_ingest_leases WHERE request_id = %s", (requests[0],))
        await real(pool, jobs)

    handler.prepare = lose_one  # type: ignore[method-assign]
    assert await working.step() == 2
    assert [ended(conn, request_id)[0].status for request_id in requests] == ["queued", "completed"]


# -- commits that may have happened ----------------------------------------------------------------------


@pytest.mark.parametrize("happened", [True, False])
async def test_a_set_whose_commit_is_uncertain_is_done_once(
    pool: Pool,
    conn: Connection,
    test_settings: Settings,
    membership: Membership,
    monkeypatch: pytest.MonkeyPatch,
    happened: bool,
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1), chapter(2)])
    calls = 0

    async def lose_the_second(real: Transaction, work: Work) -> Any:
        nonlocal calls
        calls += 1
        if calls != 2:  # the first is the claim
            return await real(work)
        if happened:
            await real(work)
        raise errors.CommitUncertain("lost")

    with faults(monkeypatch, pool, lose_the_second):
        await make_loop(pool, membership, test_settings).step()
    assert ended(conn, request_id) == [DONE, DONE]
    assert count(conn, "events") == count(conn, "chapters") == 2
    assert conn.fetch_all("SELECT processed_items FROM wp_novel_ingest_requests") == [(2,)]


async def test_a_story_that_arrives_makes_its_chapters_due_and_rings_for_them(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    request_id = push(conn, [chapter(1)])
    chapters = make_loop(pool, membership, test_settings)
    await chapters.step()
    assert await chapters.step() == 0
    rung: list[str] = []

    async def ring(job_type: str) -> None:
        rung.append(job_type)

    push(conn, [story(1)])
    stories = make_loop(pool, membership, test_settings, handler=Stories())
    stories._ring = ring
    await stories.step()
    assert rung == ["chapters_bulk"]
    await chapters.step()
    assert ended(conn, request_id) == [Ended("completed", 2)]


# -- memory ----------------------------------------------------------------------------------------------


async def test_a_handler_keeps_no_prepared_bodies_of_sets_that_are_done(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    add_stories(conn)
    handler = Chapters(max_versions=5)
    shared = Shared()
    working = make_loop(pool, membership, test_settings, handler=handler, shared=shared)
    for n in range(5):
        push(conn, [chapter(10 * n + m) for m in range(1, 6)])
        await working.step()
        assert handler._prepared == {}
        assert shared.held == set()
    assert all_ended(conn)
