"""Transactions on a real server: committed once, run again whole, or nothing."""

import asyncio

import pytest
from asyncmy.errors import MySQLError

from schema.connection import Connection as SyncConnection
from store import errors, retry
from store.connection import Connection
from store.errors import DatabaseUnavailable
from store.pool import Pool
from tests.store.conftest import MakePool
from tests.store.counting import ADD, counted, value

DEADLOCK = "1213"


async def test_a_transaction_commits_and_returns_what_its_work_returned(pool: Pool, counters: str) -> None:
    async def work(conn: Connection) -> str:
        await conn.execute(ADD, (1, 1))
        return "done"

    assert await pool.transaction(work) == "done"
    assert await value(pool) == 1


async def test_an_error_rolls_everything_back_and_the_connection_goes_on(make_pool: MakePool, counters: str) -> None:
    pool = make_pool(size=1)

    async def work(conn: Connection) -> None:
        await conn.execute(ADD, (1, 1))
        raise LookupError("no")

    with pytest.raises(LookupError):
        await pool.transaction(work)
    assert await value(pool) == 0


async def test_a_broken_rule_of_the_database_is_raised_once_and_not_tried_again(pool: Pool, counters: str) -> None:
    attempts = 0

    async def work(conn: Connection) -> None:
        nonlocal attempts
        attempts += 1
        await conn.execute("INSERT INTO wp_novel_test_counters VALUES (%s, %s)", (1, 1))

    with pytest.raises(MySQLError) as caught:
        await pool.transaction(work)
    assert errors.number(caught.value) == 1062
    assert attempts == 1


async def test_both_sides_of_a_deadlock_succeed(pool: Pool, counters: str) -> None:
    """They lock 1 and 2 in opposite order, and each waits until the other has its first lock."""
    before = counted("novel_database_retries_total", error=DEADLOCK)
    arrived = asyncio.Barrier(2)
    attempts = 0

    async def move(conn: Connection, first: int, second: int) -> None:
        nonlocal attempts
        attempts += 1
        await conn.execute(ADD, (1, first))
        if attempts <= 2:
            await arrived.wait()
        await conn.execute(ADD, (1, second))

    await asyncio.gather(
        pool.transaction(lambda conn: move(conn, 1, 2)), pool.transaction(lambda conn: move(conn, 2, 1))
    )
    assert (await value(pool, 1), await value(pool, 2)) == (2, 2)
    assert attempts == 3
    assert counted("novel_database_retries_total", error=DEADLOCK) == before + 1


async def test_a_lock_wait_that_timed_out_is_tried_again(
    make_pool: MakePool, conn: SyncConnection, counters: str
) -> None:
    pool = make_pool(lock_seconds=1)
    conn.raw.begin()
    conn.execute(ADD, (10, 1))
    attempts = 0

    async def work(writer: Connection) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            conn.raw.commit()
        await writer.execute(ADD, (1, 1))

    await pool.transaction(work)
    assert attempts == 2
    assert await value(pool) == 11


async def test_an_error_that_work_swallowed_still_runs_the_transaction_again(pool: Pool, counters: str) -> None:
    """Galera may answer OK to the COMMIT of a transaction that it gave up before."""
    arrived = asyncio.Barrier(2)
    swallowed = 0
    attempts = 0

    async def move(conn: Connection, first: int, second: int) -> None:
        nonlocal attempts, swallowed
        attempts += 1
        await conn.execute(ADD, (1, first))
        if attempts <= 2:
            await arrived.wait()
        try:
            await conn.execute(ADD, (1, second))
        except MySQLError:
            swallowed += 1

    await asyncio.gather(
        pool.transaction(lambda conn: move(conn, 1, 2)), pool.transaction(lambda conn: move(conn, 2, 1))
    )
    assert swallowed == 1
    assert (await value(pool, 1), await value(pool, 2)) == (2, 2)


async def test_it_gives_up_when_the_lock_never_comes(
    make_pool: MakePool, conn: SyncConnection, counters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 2)
    pool = make_pool(lock_seconds=1)
    conn.raw.begin()
    conn.execute(ADD, (10, 1))
    with pytest.raises(DatabaseUnavailable, match="gave up after 2 attempts"):
        await pool.transaction(lambda writer: writer.execute(ADD, (1, 1)))
    conn.raw.rollback()
    assert await value(pool) == 0
