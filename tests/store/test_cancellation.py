"""Borrowers that are cancelled: nobody gets their rows, and no place or lock is lost."""

import asyncio
import random

import pytest

from schema.connection import Connection as SyncConnection
from store.connection import Connection
from tests.store.conftest import MakePool
from tests.store.counting import ADD, connection_id, counted, eventually, value

SLEEP = "SELECT SLEEP(%s)"


def sleeps(conn: SyncConnection, number: int) -> bool:
    """Whether the server is at a SLEEP for that connection."""
    state = "SELECT 1 FROM information_schema.processlist WHERE id = %s AND state = 'User sleep'"
    return conn.fetch_one(state, (number,)) is not None


async def test_a_connection_whose_reader_was_cancelled_is_never_used_again(
    make_pool: MakePool, conn: SyncConnection
) -> None:
    pool = make_pool(size=1)
    before = counted("novel_database_discarded_total", reason="unfinished")
    ids: list[int] = []

    async def read() -> None:
        async with pool.reading() as reader:
            ids.append(await connection_id(reader))
            await reader.fetch_one(SLEEP, (5,))

    task = asyncio.create_task(read())
    await eventually(lambda: ids and sleeps(conn, ids[0]))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with pool.reading() as reader:
        assert await connection_id(reader) != ids[0]
        assert await reader.fetch_one("SELECT %s", ("mine",)) == ("mine",)
    assert counted("novel_database_discarded_total", reason="unfinished") == before + 1


async def test_readers_cancelled_at_any_moment_never_give_others_their_rows(make_pool: MakePool) -> None:
    pool = make_pool(size=3, wait_seconds=60)
    rng = random.Random(7)

    async def read(number: int) -> tuple[int, object]:
        async with pool.reading() as conn:
            return number, await conn.fetch_one("SELECT %s, SLEEP(%s)", (number, rng.choice((0, 0, 0.002))))

    async def cancelled_now_and_then(number: int) -> tuple[int, object] | None:
        task = asyncio.create_task(read(number))
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() * 0.01)
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None

    answers = await asyncio.gather(*(cancelled_now_and_then(number) for number in range(400)))
    answered = [answer for answer in answers if answer]
    assert len(answered) >= 150
    assert len(answered) < 400
    assert all(row == (number, 0) for number, row in answered)
    async with pool.reading(), pool.reading(), pool.reading():
        pass  # no place was lost


async def test_a_cancelled_transaction_changes_nothing_and_frees_its_locks(make_pool: MakePool, counters: str) -> None:
    pool = make_pool(size=1)
    has_lock = asyncio.Event()

    async def work(conn: Connection) -> None:
        await conn.execute(ADD, (1, 1))
        has_lock.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(pool.transaction(work))
    await has_lock.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await pool.transaction(lambda conn: conn.execute(ADD, (5, 1)))
    assert await value(pool) == 5


async def test_one_connection_runs_one_statement_at_a_time(make_pool: MakePool, conn: SyncConnection) -> None:
    pool = make_pool(size=1)
    async with pool.reading() as reader:
        number = await connection_id(reader)
        slow = asyncio.create_task(reader.fetch_one(SLEEP, (5,)))
        await eventually(lambda: sleeps(conn, number))
        with pytest.raises(RuntimeError, match="one statement at a time"):
            await reader.fetch_one("SELECT 1")
        slow.cancel()
