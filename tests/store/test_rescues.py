"""What dead workers held comes back: whole, then in halves, and what kills workers ends alone."""

import asyncio
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.connection import Connection as PlainConnection
from store import payloads, rescues, workers
from store.connection import Connection
from store.jobs import Job
from store.pool import Pool
from store.rescues import Rescued
from store.units import LeaseLost, Unit
from tests.store import queue_factory as factory
from tests.store.queue_factory import MAX_CRASHES, SOURCE, Counts, Queued


async def die(pool: Pool, conn: PlainConnection) -> tuple[list[Unit], Rescued]:
    """A new worker claims, dies, and is rescued."""
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    rescued = await factory.rescue(pool, worker_id)
    assert rescued is not None
    return claimed, rescued


async def bring_back(pool: Pool, worker_id: int, *, only: set[int] | None = None) -> Rescued:
    return await pool.transaction(
        lambda conn: rescues.bring_back(
            conn, worker_id, max_crashes=MAX_CRASHES, payload_minutes=factory.PAYLOAD_MINUTES, only=only
        )
    )


async def orphans(pool: Pool) -> list[int]:
    async with pool.reading() as reading:
        return await rescues.orphans(reading)


# -- who is rescued -------------------------------------------------------------------------------------


async def test_only_who_has_been_silent_for_the_lease_is_rescued(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool)
    worker_id = factory.join(conn)
    await factory.claim(pool, worker_id)
    assert await factory.rescue(pool, worker_id, silent_seconds=120) is None
    assert factory.leased(conn, worker_id) == [Queued(0, 2, 3, 0, 0)]
    factory.silence(conn, worker_id, seconds=119 - 60)
    assert await factory.rescue(pool, worker_id, silent_seconds=120) is None
    factory.silence(conn, worker_id, seconds=61)
    assert await factory.rescue(pool, worker_id, silent_seconds=120) == Rescued(1, 0)
    assert await factory.rescue(pool, worker_id, silent_seconds=120) is None
    assert factory.ready(conn) == [Queued(0, 2, 3, 0, 1)]


async def test_two_rescuers_bring_back_what_was_held_once(pool: Pool, conn: PlainConnection) -> None:
    for _ in range(8):
        await factory.enqueue(pool)
        worker_id = factory.join(conn)
        claimed = await factory.claim(pool, worker_id)
        found = await asyncio.gather(*(factory.rescue(pool, worker_id) for _ in range(2)))
        assert sorted(found, key=lambda rescued: rescued is None) == [Rescued(len(claimed), 0), None]
        assert factory.uncovered(conn) == []
        last = factory.join(conn)
        await factory.end(pool, await factory.claim(pool, last), last, factory.done)


async def test_a_worker_that_ends_while_it_is_rescued_is_first_or_changes_nothing(
    pool: Pool, conn: PlainConnection
) -> None:
    for _ in range(12):
        request_id = await factory.enqueue(pool)
        worker_id = factory.join(conn)
        claimed = await factory.claim(pool, worker_id)
        ended, rescued = await asyncio.gather(
            factory.end(pool, claimed, worker_id, factory.done),
            factory.rescue(pool, worker_id),
            return_exceptions=True,
        )
        if isinstance(ended, BaseException):
            assert isinstance(ended, LeaseLost)
            assert rescued == Rescued(1, 0)
            last = factory.join(conn)
            await factory.end(pool, await factory.claim(pool, last), last, factory.done)
        else:
            assert rescued == Rescued(0, 0)
        assert factory.counts(conn, request_id) == Counts("completed", 3, 0)
        assert factory.ready(conn) == []


async def test_what_is_held_by_nobody_who_is_there_is_found(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool)
    await factory.enqueue(pool, source="another")
    gone, present = (factory.join(conn) for _ in range(2))
    await factory.claim(pool, gone, sources=[SOURCE])
    await factory.claim(pool, present)
    assert await orphans(pool) == []
    workers.leave(conn, gone)
    assert await orphans(pool) == [gone]
    assert await bring_back(pool, gone) == Rescued(1, 0)
    assert await orphans(pool) == []
    assert await bring_back(pool, gone) == Rescued(0, 0)


async def test_only_some_units_are_brought_back_if_only_they_are_wanted(pool: Pool, conn: PlainConnection) -> None:
    for index in range(3):
        await factory.enqueue(pool, indexes=[index])
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    # One of them is held no more, or was never.
    assert await bring_back(pool, worker_id, only={claimed[1].id, 10**9}) == Rescued(1, 0)
    assert factory.ready(conn) == [Queued(1, 1, 1, 0, 1)]
    assert factory.leased(conn, worker_id) == [Queued(0, 0, 1, 0, 0), Queued(2, 2, 1, 0, 0)]


# -- what becomes of it ---------------------------------------------------------------------------------


async def test_one_poison_item_ends_alone_and_its_neighbours_lose_nothing(pool: Pool, conn: PlainConnection) -> None:
    """Whoever touches item 5 dies; the others are done as soon as somebody gets them without it."""
    poison, items = 5, 11
    request_id = await factory.enqueue(pool, indexes=range(items))
    innocent = await factory.enqueue(pool, indexes=range(4))
    deaths = dead = 0
    while factory.ready(conn):
        worker_id = factory.join(conn)
        claimed = await factory.claim(pool, worker_id)
        guilty = any(unit.request_id == request_id and unit.first <= poison <= unit.last for unit in claimed)
        if guilty:
            deaths += 1
            rescued = await factory.rescue(pool, worker_id)
            assert rescued is not None
            dead += rescued.dead
        else:
            await factory.end(pool, claimed, worker_id, factory.done)
        assert factory.uncovered(conn) == []
    assert dead == 1
    assert factory.statuses(conn, request_id) == ["completed"] * poison + ["dead"] + ["completed"] * (
        items - poison - 1
    )
    # No attempt is counted for a crash: the others were done at their first, the poison had none that ended.
    assert factory.attempts(conn, request_id) == [1] * poison + [0] + [1] * (items - poison - 1)
    message = f"{MAX_CRASHES} workers died while they worked on this item."
    assert factory.counts(conn, request_id) == Counts("partially_failed", items - 1, 1, message)
    assert factory.counts(conn, innocent) == Counts("completed", 4, 0)
    assert conn.fetch_all(
        "SELECT error_code, last_error, crashes FROM wp_novel_ingest_jobs WHERE request_id = %s AND item_index = %s",
        (request_id, poison),
    ) == [("worker_crashed", message, MAX_CRASHES)]
    # Twice whole, then halves down to the one: 11, 11, 5 or 6, 2 or 3, at most 2, 1; and alone until it is enough.
    assert deaths <= 5 + MAX_CRASHES


async def test_a_crashed_unit_comes_back_whole_at_first_and_then_in_halves(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool, indexes=(0, 1, 3, 4, 9))
    await die(pool, conn)
    assert factory.ready(conn) == [Queued(0, 9, 5, 0, 1)]
    await die(pool, conn)
    assert factory.ready(conn) == [Queued(0, 1, 2, 0, 1), Queued(3, 9, 3, 0, 1)]
    claimed, _ = await die(pool, conn)
    assert [(unit.first, unit.last) for unit in claimed] == [(0, 1)]  # what crashed is claimed alone
    assert factory.ready(conn) == [Queued(0, 0, 1, 0, 1), Queued(1, 1, 1, 0, 1), Queued(3, 9, 3, 0, 1)]


async def test_a_crash_takes_no_attempt_and_keeps_those_that_were_made(pool: Pool, conn: PlainConnection) -> None:
    request_id = await factory.enqueue(pool, indexes=[0])
    worker_id = factory.join(conn)
    for _ in range(2):
        await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.again)
    await die(pool, conn)
    assert factory.ready(conn) == [Queued(0, 0, 1, 2, 1)]
    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.again)
    assert factory.ready(conn) == [Queued(0, 0, 1, 3, 1)]
    assert factory.attempts(conn, request_id) == [3]


async def test_what_comes_back_is_due_at_once_and_weighs_the_same(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool, indexes=range(5))
    weight = "SELECT SUM(items), SUM(payload_bytes), MAX(next_run_at) <= UTC_TIMESTAMP(6) FROM wp_novel_ingest_ready"
    before = conn.fetch_all(weight)
    for _ in range(3):
        await die(pool, conn)
        assert conn.fetch_all(weight) == before


async def test_what_had_ended_already_does_not_come_back(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool, indexes=range(4))
    worker_id = factory.join(conn)
    await factory.claim(pool, worker_id)
    conn.execute("UPDATE wp_novel_ingest_jobs SET status = 2 WHERE item_index IN (0, 3)")
    assert await factory.rescue(pool, worker_id) == Rescued(1, 0)
    assert factory.ready(conn) == [Queued(1, 2, 2, 0, 1)]
    worker_id = factory.join(conn)
    await factory.claim(pool, worker_id)
    conn.execute("UPDATE wp_novel_ingest_jobs SET status = 2")
    assert await factory.rescue(pool, worker_id) == Rescued(1, 0)
    assert factory.ready(conn) == []


async def test_a_rescue_that_is_rolled_back_leaves_everything_as_it_was(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool)
    worker_id = factory.join(conn)
    await factory.claim(pool, worker_id)

    async def fails(writing: Connection) -> None:
        await rescues.rescue(writing, worker_id, silent_seconds=0, max_crashes=1, payload_minutes=1)
        raise RuntimeError("before COMMIT")

    with pytest.raises(RuntimeError, match="before COMMIT"):
        await pool.transaction(fails)
    assert factory.leased(conn, worker_id) == [Queued(0, 2, 3, 0, 0)]
    assert workers.beat(conn, worker_id)


@given(items=st.integers(0, 40), crashes=st.integers(0, 9), attempts=st.integers(0, 9))
def test_pieces_have_each_item_once_in_order_and_shrink(items: int, crashes: int, attempts: int) -> None:
    at = datetime(2026, 1, 1)
    indexes = [2 * place for place in range(items)]
    unit = Unit(1, payloads.STORIES, SOURCE, "r", 1, 0, 2 * items, items, 10 * items, attempts, crashes, at, at)
    pieces = rescues.pieces(unit, [Job(place, unit, index, 10, None) for place, index in enumerate(indexes)])
    assert [index for piece in pieces for index in indexes if piece.first <= index <= piece.last] == indexes
    assert sum(piece.items for piece in pieces) == items
    assert sum(piece.payload_bytes for piece in pieces) == 10 * items
    assert {piece.attempts for piece in pieces} <= {attempts}
    if crashes and items > 1:
        assert [piece.items for piece in pieces] == [items // 2, items - items // 2]
        assert {piece.crashes for piece in pieces} == {1}
    else:
        assert [piece.crashes for piece in pieces] == [crashes + 1] * bool(items)
