"""The recount queue: who is due and in which order, what a touch does, and whose a claim is."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from runtime.addresses import DatabaseAddress
from schema.connection import Connection as PlainConnection
from store import recounts
from store.connection import Connection
from store.recounts import ASKED_FOR, MAX_ATTEMPTS
from tests.store.counted_stories import Reads, queued
from tests.store.recounting import LEASE, WINDOW, ask, claim, finish, give_back, ids, postpone, touch
from tests.store.stepped import Clock, SteppedPool, stepped_pool

_ROW = """
    SELECT next_run_at, priority, touch_count, attempts, locked_at, dirty_since
    FROM wp_novel_story_recount_queue WHERE story_id = %s
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def at(address: DatabaseAddress, clock: Clock) -> AsyncIterator[SteppedPool]:
    """Connections in the test's time, which wait no longer than a second for a lock."""
    async with stepped_pool(address, clock) as pool:
        yield pool


def row(conn: PlainConnection, story_id: int) -> dict[str, Any]:
    names = ("next_run_at", "priority", "touch_count", "attempts", "locked_at", "dirty_since")
    return dict(zip(names, conn.fetch_all(_ROW, (story_id,))[0], strict=True))


# -- order and cost of a claim -----------------------------------------------------------------------------


async def test_claims_go_by_priority_then_time_then_story(at: SteppedPool, clock: Clock) -> None:
    await touch(at, 7)
    clock.tick(1)
    await touch(at, 4, 6, 2)
    clock.tick(1)
    await ask(at, 9, 5)
    clock.tick(1)
    await ask(at, 8)
    assert ids(await claim(at)) == [5, 9, 8, 7, 2, 4, 6]


async def test_a_claim_takes_its_limit_and_the_next_goes_on_behind_it(at: SteppedPool) -> None:
    await touch(at, *range(1, 8))
    await ask(at, 20, 21)
    assert ids(await claim(at, limit=4)) == [20, 21, 1, 2]
    assert ids(await claim(at, "2", limit=4)) == [3, 4, 5, 6]
    assert ids(await claim(at, limit=4)) == [7]
    assert await claim(at, limit=4) == []


async def test_every_priority_gets_its_turn(at: SteppedPool, conn: PlainConnection) -> None:
    await touch(at, *range(1, 7))
    for story_id, priority in enumerate((0, 255, 3, 0, 10, 3), 1):
        conn.execute("UPDATE wp_novel_story_recount_queue SET priority = %s WHERE story_id = %s", (priority, story_id))
    assert ids(await claim(at)) == [2, 5, 3, 6, 1, 4]


@pytest.mark.parametrize("priority", [0, ASKED_FOR, 255])
async def test_a_claim_reads_what_it_takes_and_nothing_that_is_not_due(
    at: SteppedPool, conn: PlainConnection, clock: Clock, priority: int
) -> None:
    fill = (
        "INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, priority, locked_at, locked_by,"
        " updated_at) SELECT seq, %s, %s, %s, %s, %s, %s FROM seq_{}_to_{}"
    )
    now, later = clock.after(0), clock.after(3600)
    waiting, claimed = fill.format(10_001, 25_000), fill.format(25_001, 30_000)
    conn.execute(waiting, (now, later, priority, None, None, now))
    conn.execute(claimed, (now, clock.after(LEASE), priority, now, "9", now))
    await touch(at, *range(1, 501))

    async def reads_of(limit: int) -> tuple[int, int, int]:
        async def work(conn: Connection) -> tuple[int, int, int]:
            async with Reads(conn) as reads:
                taken = await recounts.claim(conn, worker="1", limit=limit, lease_seconds=LEASE)
            return len(taken), reads.entries, reads.rows

        return await at.transaction(work)

    for limit, due in ((20, 20), (500, 480), (500, 0)):
        count, entries, rows = await reads_of(limit)
        assert count == due
        # An entry for each that is taken; the ends of the ranges and of the indexes.
        assert entries <= due + 12
        # The list of ids that were taken.
        assert rows <= 3 * due + 12


async def test_looking_for_ended_leases_reads_those_and_no_others(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    await touch(at, *range(1, 31))
    await claim(at, "2")
    clock.tick(LEASE + 1)
    conn.execute(
        "INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, locked_at, locked_by,"
        " updated_at) SELECT seq, %s, %s, %s, '9', %s FROM seq_1001_to_6000",
        (clock.after(0), clock.after(LEASE), clock.after(0), clock.after(0)),
    )

    async def work(conn: Connection) -> tuple[int, int]:
        async with Reads(conn) as reads:
            taken = await recounts.claim(conn, worker="1", limit=500, lease_seconds=LEASE)
        return len(taken), reads.entries

    count, entries = await at.transaction(work)
    assert count == 30
    assert entries <= 2 * 30 + 12


# -- touches -----------------------------------------------------------------------------------------------


async def test_touches_of_a_story_are_one_row_that_is_due_when_the_first_one_says(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    first_due, first_dirty = clock.after(WINDOW), clock.after(0)
    for _ in range(3):
        await touch(at, 1, 1, 2, window=WINDOW)
        clock.tick(10)
    assert queued(conn) == {1: 3, 2: 3}
    seen = row(conn, 1)
    assert (seen["next_run_at"], seen["dirty_since"]) == (first_due, first_dirty)


@pytest.mark.parametrize(("window", "due_after"), [(0, 0), (0.5, 1), (1, 1), (60, 60), (3600, 3600)])
async def test_a_touch_is_due_after_its_window_and_not_before(
    at: SteppedPool, clock: Clock, window: float, due_after: int
) -> None:
    await touch(at, 1, window=window)
    if due_after:
        clock.tick(due_after - 1)
        assert await claim(at) == []
        clock.tick(1)
    assert ids(await claim(at)) == [1]


async def test_a_shorter_window_brings_a_story_forward_and_a_longer_one_does_not_put_it_off(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    for window in (60, 600, 5):
        await touch(at, 1, window=window)
    assert row(conn, 1)["next_run_at"] == clock.after(5)


async def test_more_stories_than_one_statement_takes_are_all_touched(at: SteppedPool, conn: PlainConnection) -> None:
    many = list(range(1, 1000))
    await touch(at, *reversed(many))
    await touch(at, *many)
    assert queued(conn) == dict.fromkeys(many, 2)
    await ask(at, *many)
    assert queued(conn) == dict.fromkeys(many, 3)


async def test_touching_nothing_is_nothing(at: SteppedPool, conn: PlainConnection) -> None:
    await touch(at)
    await ask(at)
    assert queued(conn) == {}


async def test_what_is_asked_for_comes_first_and_at_once(at: SteppedPool, clock: Clock) -> None:
    await touch(at, 1, 2)
    await touch(at, 3, window=WINDOW)
    clock.tick(5)
    await ask(at, 3, 4)
    assert ids(await claim(at)) == [3, 4, 1, 2]


async def test_a_touch_after_the_asking_changes_neither_time_nor_priority(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    await ask(at, 1)
    await touch(at, 1, window=WINDOW)
    seen = row(conn, 1)
    assert (seen["next_run_at"], seen["priority"], seen["touch_count"]) == (clock.after(0), ASKED_FOR, 2)


# -- failures ----------------------------------------------------------------------------------------------


async def test_a_story_that_failed_waits_its_time_whatever_touches_it(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    await touch(at, 1)
    (dirty,) = await claim(at)
    await postpone(at, dirty, 29.5)
    await touch(at, 1, window=0)
    clock.tick(29)
    assert await claim(at) == []
    clock.tick(1)
    (again,) = await claim(at)
    assert (again.attempts, again.touch_count) == (1, 2)
    await postpone(at, again, 100)
    assert row(conn, 1)["attempts"] == 2


async def test_a_story_that_failed_is_tried_at_once_when_it_is_asked_for(at: SteppedPool) -> None:
    await touch(at, 1)
    (dirty,) = await claim(at)
    await postpone(at, dirty, 3600)
    await ask(at, 1)
    assert ids(await claim(at)) == [1]


async def test_failures_are_counted_as_far_as_the_column_goes(at: SteppedPool, conn: PlainConnection) -> None:
    await touch(at, 1)
    conn.execute("UPDATE wp_novel_story_recount_queue SET attempts = %s", (MAX_ATTEMPTS,))
    (dirty,) = await claim(at)
    await postpone(at, dirty, 0)
    assert row(conn, 1)["attempts"] == MAX_ATTEMPTS


async def test_a_story_that_was_counted_and_touched_meanwhile_has_not_failed_any_more(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    await touch(at, 1)
    (dirty,) = await claim(at)
    await postpone(at, dirty, 30)
    clock.tick(30)
    claimed = await claim(at)
    await touch(at, 1, window=WINDOW)
    await finish(at, claimed)
    assert row(conn, 1)["attempts"] == 0


# -- the end of a recount ----------------------------------------------------------------------------------


async def test_what_was_touched_since_the_claim_stays_and_is_due_after_the_window(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    await touch(at, 1, 2)
    clock.tick(5)
    claimed_at = clock.after(0)
    claimed = await claim(at)
    clock.tick(5)
    await touch(at, 2, window=0)
    assert await finish(at, claimed) == {1, 2}
    assert queued(conn) == {2: 2}
    seen = row(conn, 2)
    assert (seen["next_run_at"], seen["dirty_since"], seen["locked_at"]) == (clock.after(WINDOW), claimed_at, None)
    clock.tick(WINDOW)
    await finish(at, await claim(at))
    assert queued(conn) == {}


async def test_what_is_asked_for_during_its_recount_is_counted_again_at_once(at: SteppedPool, clock: Clock) -> None:
    await touch(at, 1, 2)
    claimed = await claim(at)
    await ask(at, 2)
    assert await claim(at, "2") == []
    await finish(at, claimed)
    assert ids(await claim(at)) == [2]


async def test_an_outdated_count_is_made_again_and_a_story_that_waits_is_not_touched(
    at: SteppedPool, conn: PlainConnection
) -> None:
    await touch(at, 1, 2)
    claimed = await claim(at, limit=1)
    for story_id in (1, 2, 3):
        await at.transaction(lambda conn, story_id=story_id: recounts.outdate(conn, story_id))  # type: ignore[misc]
    assert queued(conn) == {1: 2, 2: 1}
    await finish(at, claimed)
    assert queued(conn) == {1: 2, 2: 1}


async def test_an_empty_set_needs_no_statement(at: SteppedPool) -> None:
    async def work(conn: Connection) -> None:
        assert await recounts.hold(conn, []) == {}
        assert await recounts.still_ours(conn, []) == set()
        await recounts.clear(conn, [], {}, window_seconds=WINDOW)
        await recounts.free(conn, [])

    await at.transaction(work)
    assert at.turns.statements == ["START TRANSACTION", "COMMIT"]


# -- leases ------------------------------------------------------------------------------------------------


async def test_a_claim_stands_for_its_lease_and_is_another_s_after_it(at: SteppedPool, clock: Clock) -> None:
    await touch(at, 1, 2)
    await claim(at, "1")
    clock.tick(LEASE)
    assert await claim(at, "2") == []
    clock.tick(1)
    assert ids(await claim(at, "2")) == [1, 2]


async def test_a_lease_that_ended_is_a_failure_of_no_story(at: SteppedPool, clock: Clock) -> None:
    await touch(at, 1)
    await claim(at, "1")
    clock.tick(LEASE + 1)
    (dirty,) = await claim(at, "2")
    assert (dirty.attempts, dirty.touch_count) == (0, 1)


async def test_a_late_worker_changes_nothing(at: SteppedPool, conn: PlainConnection, clock: Clock) -> None:
    await touch(at, 1, 2)
    late = await claim(at, "1")
    clock.tick(LEASE + 1)
    taken_over = await claim(at, "2")
    assert await finish(at, late) == set()
    assert row(conn, 1)["locked_at"] == taken_over[0].locked_at
    assert await finish(at, taken_over) == {1, 2}
    assert await finish(at, late) == set()


async def test_a_worker_whose_lease_ended_may_finish_what_nobody_has_taken_over(at: SteppedPool, clock: Clock) -> None:
    await touch(at, 1)
    claimed = await claim(at)
    clock.tick(10 * LEASE)
    assert await finish(at, claimed) == {1}


async def test_a_late_worker_does_not_end_its_own_later_claim(
    at: SteppedPool, conn: PlainConnection, clock: Clock
) -> None:
    await touch(at, 1)
    late = await claim(at, "1")
    clock.tick(LEASE + 1)
    again = await claim(at, "1")
    assert await finish(at, late) == set()
    assert queued(conn) == {1: 1}
    assert await finish(at, again) == {1}


async def test_what_is_given_back_is_due_at_once(at: SteppedPool, conn: PlainConnection) -> None:
    await touch(at, 1, 2)
    await ask(at, 3)
    await claim(at, "1")
    assert await give_back(at, "1") == 3
    assert ids(await claim(at, "2")) == [3, 1, 2]
    assert queued(conn) == {1: 1, 2: 1, 3: 1}


async def test_only_the_claims_of_that_worker_are_given_back(at: SteppedPool) -> None:
    for story_id, worker in enumerate(("1", "11", "2"), 1):
        await touch(at, story_id)
        await claim(at, worker)
    await touch(at, 9)
    assert await give_back(at, "1") == 1
    assert await give_back(at, "1") == 0
    assert ids(await claim(at)) == [1, 9]


async def test_a_claim_that_was_given_back_is_over_though_all_of_it_happens_within_a_second(
    at: SteppedPool, conn: PlainConnection
) -> None:
    """The same worker, the same second, the same touch count: still another claim."""
    await touch(at, 1)
    first = await claim(at, "1")  # and counts
    await give_back(at, "1")
    await finish(at, await claim(at, "1"))
    await touch(at, 1)  # what the first has not counted
    second = await claim(at, "1")
    assert await finish(at, first) == set()
    assert queued(conn) == {1: 1}
    assert await finish(at, second) == {1}
