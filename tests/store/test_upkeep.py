"""Turns at a task: one holder at a time, a dead one's turn ends by itself, and a late one records nothing."""

import asyncio
from typing import Any

import pytest

from schema.connection import Connection as PlainConnection
from store import upkeep
from store.connection import Connection
from store.pool import Pool
from store.upkeep import Turn, TurnLost
from tests.store.conftest import MakePool

TASK = "nonces"
_STATE = """
    SELECT holder, held_until, next_run_at, finished_at, seconds, changed_rows, lag_seconds, place
    FROM wp_novel_upkeep WHERE task = %s
"""


async def take(
    pool: Pool,
    *,
    task: str = TASK,
    holder: str = "1",
    every_seconds: float = 300,
    hold_seconds: float = 120,
    before_its_time: bool = False,
) -> Turn | None:
    return await pool.transaction(
        lambda conn: upkeep.take(
            conn,
            task,
            holder=holder,
            every_seconds=every_seconds,
            hold_seconds=hold_seconds,
            before_its_time=before_its_time,
        )
    )


async def taken(pool: Pool, **options: Any) -> Turn:
    turn = await take(pool, **options)
    assert turn is not None
    return turn


async def finish(pool: Pool, turn: Turn, *, place: str | None = None, again_seconds: float | None = None) -> None:
    async def work(conn: Connection) -> None:
        await upkeep.finish(conn, turn, rows=7, lag_seconds=1.5, place=place, again_seconds=again_seconds)

    await pool.transaction(work)


async def due(pool: Pool, *tasks: str) -> set[str]:
    async with pool.reading() as conn:
        return await upkeep.due(conn, tasks or (TASK,))


async def holder(pool: Pool) -> str | None:
    async with pool.reading() as conn:
        return await upkeep.holder_of(conn, TASK)


def state(conn: PlainConnection) -> tuple[Any, ...]:
    return conn.fetch_all(_STATE, (TASK,))[0]


def pass_by(conn: PlainConnection, seconds: int) -> None:
    """As if so much time had passed."""
    conn.execute(
        "UPDATE wp_novel_upkeep SET held_until = held_until - INTERVAL %s SECOND,"
        " next_run_at = next_run_at - INTERVAL %s SECOND",
        (seconds, seconds),
    )


async def test_a_task_that_was_never_done_is_due_and_taken_once(pool: Pool) -> None:
    assert await due(pool, TASK, "minutes") == {TASK, "minutes"}
    turn = await taken(pool, holder="7")
    assert turn.place is None
    assert await holder(pool) == "7"
    assert await due(pool, TASK, "minutes") == {"minutes"}
    assert await take(pool, holder="8") is None
    assert await take(pool, holder="7") is None


@pytest.mark.parametrize("is_known", [False, True])
async def test_of_many_who_take_a_task_at_once_one_gets_it(
    make_pool: MakePool, pool: Pool, conn: PlainConnection, is_known: bool
) -> None:
    pools = [make_pool(size=1) for _ in range(6)]
    for round_number in range(5):
        if is_known:
            await finish(pool, await taken(pool, before_its_time=True), again_seconds=0)
        else:
            conn.execute("DELETE FROM wp_novel_upkeep")
        turns = await asyncio.gather(*(take(some, holder=str(number)) for number, some in enumerate(pools)))
        (turn,) = [turn for turn in turns if turn]
        assert await holder(pool) == turn.holder.split("/")[0], round_number
        await finish(pool, turn, again_seconds=0)


async def test_a_holder_says_who_it_is_whatever_its_name(pool: Pool, conn: PlainConnection) -> None:
    for name in ("novel maintenance", "a/b", "ổ" * 300):
        turn = await taken(pool, holder=name)
        assert await holder(pool) == name[: upkeep.MAX_HOLDER_CHARACTERS]
        await finish(pool, turn, again_seconds=0)
        assert await holder(pool) is None


async def test_a_turn_that_ends_records_how_it_went_and_when_the_next_one_is(pool: Pool, conn: PlainConnection) -> None:
    turn = await taken(pool, every_seconds=300)
    await finish(pool, turn, place="12")
    who, held_until, next_run_at, finished_at, seconds, rows, lag, place = state(conn)
    assert (who, rows, lag, place) == (None, 7, 1.5, "12")
    assert held_until == finished_at >= turn.taken_at
    assert (next_run_at - turn.taken_at).total_seconds() == 300
    assert seconds == pytest.approx((finished_at - turn.taken_at).total_seconds(), abs=0.001)
    assert await due(pool) == set()
    assert await take(pool) is None
    pass_by(conn, 300)
    assert await due(pool) == {TASK}
    assert (await taken(pool)).place == "12"


async def test_work_that_is_left_is_due_at_once_and_a_long_rest_is_kept(pool: Pool, conn: PlainConnection) -> None:
    await finish(pool, await taken(pool), again_seconds=0)
    turn = await taken(pool)
    await finish(pool, turn, again_seconds=6 * 3600)
    pass_by(conn, 6 * 3600 - 60)
    assert await take(pool) is None
    pass_by(conn, 60)
    assert await take(pool) is not None


async def test_before_its_time_a_task_is_taken_but_never_from_its_holder(pool: Pool) -> None:
    await finish(pool, await taken(pool))
    assert await take(pool) is None
    await taken(pool, before_its_time=True)
    assert await take(pool, before_its_time=True) is None


async def test_a_dead_holders_turn_ends_by_itself(pool: Pool, conn: PlainConnection) -> None:
    """In the database's own time."""
    await taken(pool, holder="dead", hold_seconds=0.3)
    held_until = state(conn)[1]
    assert await take(pool) is None
    async with asyncio.timeout(20):
        while (turn := await take(pool, holder="next")) is None:
            await asyncio.sleep(0.02)
    assert turn.taken_at >= held_until
    assert await holder(pool) == "next"


async def test_a_holder_that_extends_its_turn_keeps_it(pool: Pool, conn: PlainConnection) -> None:
    turn = await taken(pool)
    pass_by(conn, 100)
    await pool.transaction(lambda inside: upkeep.extend(inside, turn))
    pass_by(conn, 100)
    assert await take(pool) is None
    pass_by(conn, 100)
    await pool.transaction(lambda inside: upkeep.extend(inside, turn))  # nobody has come meanwhile
    assert await take(pool) is None


async def test_what_a_late_holder_records_is_fenced(pool: Pool, conn: PlainConnection) -> None:
    """Also if it is the same process that has the task again."""
    late = await taken(pool, holder="7")
    pass_by(conn, 1000)
    now = await taken(pool, holder="7")
    before = state(conn)
    with pytest.raises(TurnLost):
        await finish(pool, late, place="late")
    with pytest.raises(TurnLost):
        await pool.transaction(lambda inside: upkeep.extend(inside, late))
    with pytest.raises(TurnLost):
        await pool.transaction(lambda inside: upkeep.remember(inside, late, "late"))
    await pool.transaction(lambda inside: upkeep.give_back(inside, late))
    assert state(conn) == before
    await finish(pool, now, place="now")
    after = state(conn)
    with pytest.raises(TurnLost):
        await finish(pool, late, place="late")
    with pytest.raises(TurnLost):
        await finish(pool, now, place="twice")
    assert state(conn) == after


async def test_what_was_done_in_a_lost_turn_is_not_done(pool: Pool, conn: PlainConnection) -> None:
    late = await taken(pool)
    pass_by(conn, 1000)
    await taken(pool)

    async def work(inside: Connection) -> None:
        await inside.execute("INSERT INTO wp_novel_event_gate (id, passed) VALUES (200, 1)")
        await upkeep.remember(inside, late, "further")

    with pytest.raises(TurnLost):
        await pool.transaction(work)
    assert conn.fetch_all("SELECT id FROM wp_novel_event_gate WHERE id = 200") == []


async def test_a_turn_that_failed_is_tried_again_after_a_while_from_where_it_stood(
    pool: Pool, conn: PlainConnection
) -> None:
    turn = await taken(pool, every_seconds=300)
    await pool.transaction(lambda inside: upkeep.remember(inside, turn, "12"))
    await pool.transaction(lambda inside: upkeep.give_back(inside, turn))
    assert await holder(pool) is None
    assert await take(pool) is None
    pass_by(conn, 300)
    assert (await taken(pool)).place == "12"


async def test_tasks_do_not_wait_for_each_other(pool: Pool) -> None:
    await taken(pool, task="a")
    await taken(pool, task="b")
    assert await due(pool, "a", "b", "c") == {"c"}


async def test_of_many_processes_no_two_ever_hold_a_task_together(make_pool: MakePool, conn: PlainConnection) -> None:
    """Whoever has it raises a number and lowers it again; some die in between."""
    conn.execute("REPLACE INTO wp_novel_event_gate (id, passed) VALUES (201, 0)")
    seen: list[int] = []

    async def process(number: int) -> None:
        pool = make_pool(size=1)
        for attempt in range(12):
            turn = await take(pool, holder=str(number), hold_seconds=60)
            if turn is None:
                continue

            async def enter(inside: Connection, turn: Turn = turn) -> int:
                await upkeep.extend(inside, turn)
                await inside.execute("UPDATE wp_novel_event_gate SET passed = passed + 1 WHERE id = 201")
                row = await inside.fetch_one("SELECT passed FROM wp_novel_event_gate WHERE id = 201")
                assert row is not None
                return int(row[0])

            seen.append(await pool.transaction(enter))

            async def leave(inside: Connection, turn: Turn = turn, attempt: int = attempt) -> None:
                await inside.execute("UPDATE wp_novel_event_gate SET passed = passed - 1 WHERE id = 201")
                if attempt % 3:
                    await upkeep.finish(inside, turn, rows=0, lag_seconds=0, place=None, again_seconds=0)
                else:  # it is dead, and its time is over
                    await inside.execute("UPDATE wp_novel_upkeep SET held_until = UTC_TIMESTAMP(6)")

            await pool.transaction(leave)

    await asyncio.gather(*(process(number) for number in range(4)))
    assert len(seen) > 4
    assert set(seen) == {1}
