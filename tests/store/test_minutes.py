"""What the queue did in each minute: added once by workers, and counted once from the requests, whenever that is."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.connection import Connection as PlainConnection
from store import minutes
from store.connection import Connection
from store.minutes import Minute, RollUp, Tally
from store.pool import Pool
from tests.store.conftest import MakePool
from tests.store.counted_stories import Reads

T = TypeVar("T")
NOON = datetime(2026, 5, 4, 12, 0, 0)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
_NEW_REQUEST = """
    INSERT INTO wp_novel_ingest_requests
        (request_id, source, job_type, idempotency_key, accepted_items, total_items, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, 100, %s, %s)
"""
_NEW_UNIT = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, first_item, last_item, items, next_run_at, created_at)
    VALUES ('chapters_bulk', %s, UUID(), 0, 1, %s, %s, %s)
"""
_MANY_REQUESTS = """
    INSERT INTO wp_novel_ingest_requests
        (request_id, source, job_type, idempotency_key, accepted_items, created_at, updated_at)
    SELECT seq, 'a', 'stories_bulk', seq, 1, %s, %s FROM seq_1_to_20000
"""


def add_request(
    conn: PlainConnection, at: datetime, *, items: int = 1, source: str = "a", job_type: str = "stories_bulk"
) -> None:
    request_id = str(uuid4())
    conn.execute(_NEW_REQUEST, (request_id, source, job_type, request_id, items, at, at))


def add_unit(conn: PlainConnection, due: datetime, *, items: int, source: str = "a") -> None:
    conn.execute(_NEW_UNIT, (source, items, due, due))


async def at_time(pool: Pool, now: datetime, work: Callable[[Connection], Awaitable[T]]) -> T:
    """A transaction for which it is so late."""

    async def then(conn: Connection) -> T:
        seconds = (now - datetime(1970, 1, 1)).total_seconds()
        await conn.execute(f"SET timestamp = {seconds:.6f}")
        try:
            return await work(conn)
        finally:
            await conn.execute("SET timestamp = DEFAULT")

    return await pool.transaction(then)


async def roll_up(pool: Pool, now: datetime, place: str | None = None) -> RollUp:
    return await at_time(pool, now, lambda conn: minutes.roll_up(conn, place))


async def add(pool: Pool, now: datetime, *tallies: Tally) -> None:
    await at_time(pool, now, lambda conn: minutes.add(conn, tallies))


async def last(pool: Pool, now: datetime, *, ago: int = 60 * 24 * 10) -> list[Minute]:
    return await at_time(pool, now, lambda conn: minutes.last(conn, minutes=ago))


async def accepted(pool: Pool) -> dict[tuple[datetime, str, str], int]:
    found = await last(pool, NOON + timedelta(days=1))
    return {(row.minute, row.job_type, row.source): row.accepted for row in found if row.accepted}


# -- what workers add -----------------------------------------------------------------------------------


async def test_workers_add_to_the_minute_that_is_now(pool: Pool) -> None:
    a = Tally(job_type="stories_bulk", source="a", completed=5, stale=1, retried=2, failed=3, dead=4)
    b = Tally(job_type="chapters_bulk", source="a", completed=10)
    await add(pool, NOON + 59 * SECOND, a, b)
    await add(pool, NOON + 59.9 * SECOND, a)
    await add(pool, NOON + MINUTE, b)
    await add(pool, NOON + MINUTE)
    assert await last(pool, NOON + 2 * MINUTE) == [
        Minute(NOON, "chapters_bulk", "a", 0, 10, 0, 0, 0, 0, 0, 0),
        Minute(NOON, "stories_bulk", "a", 0, 10, 2, 4, 6, 8, 0, 0),
        Minute(NOON + MINUTE, "chapters_bulk", "a", 0, 10, 0, 0, 0, 0, 0, 0),
    ]


async def test_workers_that_add_at_once_lose_nothing(make_pool: MakePool, pool: Pool) -> None:
    sources = [f"s{number}" for number in range(8)]

    async def worker(number: int) -> None:
        mine = make_pool(size=1)
        for _ in range(10):
            some = sources if number % 2 else list(reversed(sources))
            await add(mine, NOON, *(Tally(job_type="stories_bulk", source=source, completed=1) for source in some))

    await asyncio.gather(*(worker(number) for number in range(4)), roll_up(pool, NOON))
    assert [row.completed for row in await last(pool, NOON + MINUTE)] == [40] * len(sources)


# -- what was accepted ----------------------------------------------------------------------------------


async def test_accepted_items_are_counted_by_the_minute_their_request_began(pool: Pool, conn: PlainConnection) -> None:
    add_request(conn, NOON - MINUTE, items=3)
    add_request(conn, NOON - SECOND, items=4)
    add_request(conn, NOON - SECOND, items=5, source="b")
    add_request(conn, NOON - SECOND, items=6, job_type="chapters_bulk")
    add_request(conn, NOON, items=100)  # its minute is not over
    rolled = await roll_up(pool, NOON + 30 * SECOND)
    assert rolled == RollUp(3, "2026-05-04 12:00:00")
    before = NOON - MINUTE
    assert await accepted(pool) == {
        (before, "stories_bulk", "a"): 7,
        (before, "stories_bulk", "b"): 5,
        (before, "chapters_bulk", "a"): 6,
    }


async def test_to_roll_up_twice_is_to_roll_up_once(pool: Pool, conn: PlainConnection) -> None:
    for second in range(0, 180, 7):
        add_request(conn, NOON + second * SECOND, items=2)
    add_unit(conn, NOON, items=9)
    await add(pool, NOON + MINUTE, Tally(job_type="stories_bulk", source="a", completed=5))
    now = NOON + 3 * MINUTE + 5 * SECOND
    rolled = await roll_up(pool, now)
    once = await last(pool, now)
    assert once
    for place in (None, rolled.place):
        await roll_up(pool, now, place)
        assert await last(pool, now) == once


async def test_a_request_that_is_committed_late_is_still_counted(pool: Pool, conn: PlainConnection) -> None:
    add_request(conn, NOON - 2 * SECOND, items=1)
    rolled = await roll_up(pool, NOON + SECOND)
    add_request(conn, NOON - SECOND, items=10)
    rolled = await roll_up(pool, NOON + MINUTE + SECOND, rolled.place)
    add_request(conn, NOON - SECOND, items=100)
    await roll_up(pool, NOON + 2 * MINUTE, rolled.place)
    assert await accepted(pool) == {(NOON - MINUTE, "stories_bulk", "a"): 111}


@pytest.mark.parametrize(("pause", "found"), [(10 * MINUTE, True), (23 * HOUR, True), (25 * HOUR, False)])
async def test_minutes_in_which_nobody_counted_are_counted_afterwards_up_to_a_day(
    pool: Pool, conn: PlainConnection, pause: timedelta, found: bool
) -> None:
    rolled = await roll_up(pool, NOON - pause)
    add_request(conn, NOON - pause + SECOND, items=7)
    add_request(conn, NOON - MINUTE, items=1)
    await roll_up(pool, NOON, rolled.place)
    counted = await accepted(pool)
    assert counted.pop((NOON - MINUTE, "stories_bulk", "a")) == 1
    assert list(counted.values()) == ([7] if found else [])


async def test_the_first_time_only_the_last_hour_is_counted(pool: Pool, conn: PlainConnection) -> None:
    add_request(conn, NOON - 30 * MINUTE, items=1)
    add_request(conn, NOON - 2 * HOUR, items=7)
    await roll_up(pool, NOON)
    assert list((await accepted(pool)).values()) == [1]


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 600),  # the second at which it began
        st.sampled_from([0, 1, 70]),  # after how many it was seen
        st.sampled_from(["a", "b"]),
        st.sampled_from(["stories_bulk", "chapters_bulk"]),
        st.integers(0, 300),
    ),
    max_size=12,
)
LOOKS = st.lists(st.tuples(st.integers(0, 600), st.integers(1, 2)), max_size=8)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=REQUESTS, looks=LOOKS)
async def test_roll_ups_at_any_times_count_as_a_simple_model_does(
    pool: Pool,
    conn: PlainConnection,
    requests: list[tuple[int, int, str, str, int]],
    looks: list[tuple[int, int]],
) -> None:
    conn.execute("DELETE FROM wp_novel_ingest_requests")
    conn.execute("DELETE FROM wp_novel_ingest_minutes")
    expected: Counter[tuple[datetime, str, str]] = Counter()
    happenings: list[tuple[int, Callable[[], object]]] = []
    for second, late, source, job_type, items in requests:
        began = NOON + second * SECOND
        expected[began.replace(second=0), job_type, source] += items
        happenings.append((second + late, _adding(conn, began, items, source, job_type)))
    place: str | None = (await roll_up(pool, NOON)).place
    for second, act in sorted([*happenings, *((second, lambda: None) for second, _ in looks)], key=lambda one: one[0]):
        act()
        for _ in range(sum(times for when, times in looks if when == second)):
            place = (await roll_up(pool, NOON + second * SECOND, place)).place
    await roll_up(pool, NOON + 12 * MINUTE, place)
    assert await accepted(pool) == {key: items for key, items in expected.items() if items}


def _adding(conn: PlainConnection, began: datetime, items: int, source: str, job_type: str) -> Callable[[], object]:
    return lambda: add_request(conn, began, items=items, source=source, job_type=job_type)


async def test_a_roll_up_reads_the_newest_requests_and_not_all_of_them(
    pool: Pool, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minutes, "PAGE_ROWS", 20)
    conn.execute(_MANY_REQUESTS, (NOON - 5 * HOUR, NOON - 5 * HOUR))
    for second in range(50):
        add_request(conn, NOON - second * SECOND - MINUTE, items=2)

    async def work(inside: Connection) -> None:
        async with Reads(inside) as reads:
            rolled = await minutes.roll_up(inside, str(NOON - MINUTE))
        assert rolled.rows == 2
        assert reads.entries <= 60 + 5
        assert reads.rows <= 10

    await at_time(pool, NOON + SECOND, work)
    assert sum((await accepted(pool)).values()) == 100


async def test_ids_that_are_a_little_out_of_the_order_of_time_hide_nothing(
    pool: Pool, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one of a page may have begun before those that come after it."""
    monkeypatch.setattr(minutes, "PAGE_ROWS", 1)
    place = str(NOON - 10 * MINUTE)
    add_request(conn, NOON - 12 * MINUTE, items=7)
    add_request(conn, NOON - 12 * MINUTE - 30 * SECOND, items=100)
    add_request(conn, NOON - MINUTE, items=1)
    await roll_up(pool, NOON, place)
    assert sorted((await accepted(pool)).values()) == [1, 7]


# -- what waits -----------------------------------------------------------------------------------------


async def waiting(pool: Pool) -> dict[tuple[datetime, str], tuple[int, int]]:
    found = await last(pool, NOON + timedelta(days=1))
    return {
        (row.minute, row.source): (row.waiting_items, row.oldest_due_seconds)
        for row in found
        if row.waiting_items or row.oldest_due_seconds
    }


async def test_what_waits_is_noted_with_how_long_the_oldest_has_been_due(pool: Pool, conn: PlainConnection) -> None:
    add_unit(conn, NOON - 90 * SECOND, items=3)
    add_unit(conn, NOON - 10 * SECOND, items=4)
    add_unit(conn, NOON + HOUR, items=5, source="b")
    await roll_up(pool, NOON + 5 * SECOND)
    assert await waiting(pool) == {(NOON, "a"): (7, 95), (NOON, "b"): (5, 0)}


async def test_a_minute_in_which_nobody_looked_is_taken_for_the_next(pool: Pool, conn: PlainConnection) -> None:
    add_unit(conn, NOON, items=3)
    rolled = await roll_up(pool, NOON + 59 * SECOND)
    await roll_up(pool, NOON + 2 * MINUTE + SECOND, rolled.place)
    assert await waiting(pool) == {
        (NOON, "a"): (3, 59),
        (NOON + MINUTE, "a"): (3, 121),
        (NOON + 2 * MINUTE, "a"): (3, 121),
    }


async def test_what_waits_no_more_at_a_second_look_in_a_minute_is_not_left_standing(
    pool: Pool, conn: PlainConnection
) -> None:
    add_unit(conn, NOON, items=3)
    add_unit(conn, NOON, items=4, source="b")
    rolled = await roll_up(pool, NOON + SECOND)
    conn.execute("DELETE FROM wp_novel_ingest_ready WHERE source = 'a'")
    await roll_up(pool, NOON + 2 * SECOND, rolled.place)
    assert await waiting(pool) == {(NOON, "b"): (4, 2)}


async def test_only_the_minutes_that_were_asked_for_are_read(pool: Pool) -> None:
    for minute in range(5):
        await add(pool, NOON + minute * MINUTE, Tally(job_type="stories_bulk", source="a", completed=1))
    found = await last(pool, NOON + 4 * MINUTE + 30 * SECOND, ago=2)
    assert [row.minute for row in found] == [NOON + 3 * MINUTE, NOON + 4 * MINUTE]
