"""The pool on a real server: its session, its transactions, and what becomes of a connection that was let down."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from asyncmy.errors import MySQLError
from prometheus_client import REGISTRY

from runtime.addresses import DatabaseAddress
from schema.connection import Connection as SyncConnection
from schema.private_database import PrivateDatabase
from store import connection, errors, retry
from store.connection import Connection
from store.errors import CommitUncertain, DatabaseUnavailable, StatementTimeout
from store.pool import Pool
from tests.store.conftest import MakePool
from tests.store.wire import Wire

DEADLOCK, LOCK_WAIT = 1213, 1205
SLEEP = "SELECT SLEEP(%s)"
READ = "SELECT value FROM wp_novel_test_counters WHERE id = %s"
ADD = "UPDATE wp_novel_test_counters SET value = value + %s WHERE id = %s"


async def value(pool: Pool, counter: int = 1) -> int:
    async with pool.reading() as conn:
        row = await conn.fetch_one(READ, (counter,))
    assert row is not None
    return int(row[0])


async def connection_id(conn: Connection) -> int:
    row = await conn.fetch_one("SELECT CONNECTION_ID()")
    assert row is not None
    return int(row[0])


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


# -- the session -----------------------------------------------------------------------------------------


async def test_every_connection_is_read_committed_utc_strict_and_bounded(make_pool: MakePool) -> None:
    pool = make_pool(size=3, statement_seconds=7, lock_seconds=3)
    async with pool.reading() as first, pool.reading() as second, pool.reading() as third:
        for conn in (first, second, third):
            own = "@@tx_isolation, @@max_statement_time"
            if not conn.dialect.is_mariadb:
                own = "@@transaction_isolation, @@max_execution_time / 1000"
            row = await conn.fetch_one(
                f"SELECT {own}, @@time_zone, @@autocommit, @@innodb_lock_wait_timeout, @@lock_wait_timeout,"
                " @@collation_connection, @@sql_mode"
            )
            assert row is not None
            assert row[:7] == ("READ-COMMITTED", 7, "+00:00", 1, 3, 3, "utf8mb4_unicode_520_ci")
            assert "STRICT_ALL_TABLES" in row[7]


async def test_a_reader_sees_each_commit_and_holds_no_snapshot(pool: Pool, conn: SyncConnection, counters: str) -> None:
    async with pool.reading() as reader:
        assert await reader.fetch_one(READ, (1,)) == (0,)
        conn.execute(ADD, (5, 1))
        assert await reader.fetch_one(READ, (1,)) == (5,)


async def test_a_connection_is_used_again(pool: Pool) -> None:
    async with pool.reading() as conn:
        first = await connection_id(conn)
    async with pool.reading() as conn:
        assert await connection_id(conn) == first


async def test_the_prefix_is_rewritten(make_pool: MakePool, conn: SyncConnection) -> None:
    conn.execute("CREATE TABLE blog7_novel_test_odd (id INT PRIMARY KEY)")
    try:
        pool = make_pool(table_prefix="blog7_")

        async def insert(conn: Connection) -> int:
            return await conn.execute_many("INSERT INTO wp_novel_test_odd (id) VALUES (%s)", [(1,), (2,), (3,)])

        assert await pool.transaction(insert) == 3
        async with pool.reading() as reader:
            assert await reader.fetch_one("SELECT COUNT(*) FROM wp_novel_test_odd WHERE id > %s", (0,)) == (3,)
    finally:
        conn.execute("DROP TABLE blog7_novel_test_odd")


# -- transactions ----------------------------------------------------------------------------------------


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
    before = counted("novel_database_retries_total", error=str(DEADLOCK))
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
    assert counted("novel_database_retries_total", error=str(DEADLOCK)) == before + 1


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


# -- lost connections ------------------------------------------------------------------------------------


async def test_a_connection_lost_before_commit_runs_the_transaction_again(
    pool: Pool, conn: SyncConnection, counters: str
) -> None:
    attempts = 0

    async def work(writer: Connection) -> None:
        nonlocal attempts
        attempts += 1
        await writer.execute(ADD, (1, 1))
        if attempts == 1:
            conn.execute("KILL CONNECTION %s", (await connection_id(writer),))
        await writer.execute(ADD, (1, 2))

    await pool.transaction(work)
    assert attempts == 2
    assert (await value(pool, 1), await value(pool, 2)) == (1, 1)


@pytest.mark.parametrize("statement", [b"START TRANSACTION", b"UPDATE wp_novel_test_counters"])
async def test_a_wire_cut_before_commit_changes_nothing_and_the_work_is_done_once(
    address: DatabaseAddress, make_pool: MakePool, counters: str, statement: bytes
) -> None:
    async with Wire(address).laid() as wire:
        pool = make_pool(wire.address)
        wire.cut_before = statement
        await pool.transaction(lambda conn: conn.execute(ADD, (1, 1)))
        assert wire.cuts == 1
        assert await value(pool) == 1


@pytest.mark.parametrize("committed", [True, False])
async def test_a_wire_cut_during_commit_is_uncertain_and_never_repeated(
    address: DatabaseAddress, make_pool: MakePool, counters: str, committed: bool
) -> None:
    async with Wire(address).laid() as wire:
        pool = make_pool(wire.address)
        attempts = 0

        async def work(conn: Connection) -> None:
            nonlocal attempts
            attempts += 1
            await conn.execute(ADD, (1, 1))
            if committed:
                wire.cut_answer_to = b"COMMIT"
            else:
                wire.cut_before = b"COMMIT"

        with pytest.raises(CommitUncertain):
            await pool.transaction(work)
        assert wire.cuts == 1
        assert attempts == 1
        assert await value(pool) == (1 if committed else 0)


async def test_a_server_that_falls_silent_is_unavailable_and_its_connection_thrown_away(
    address: DatabaseAddress, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "NETWORK_GRACE_SECONDS", 0.2)
    async with Wire(address).laid() as wire:
        pool = make_pool(wire.address, statement_seconds=0.1, size=1)
        async with pool.reading() as conn:
            wire.is_held = True
            with pytest.raises(DatabaseUnavailable, match="no answer in time"):
                await conn.fetch_one("SELECT 1")
        wire.is_held = False
        async with pool.reading() as conn:
            assert await conn.fetch_one("SELECT %s", (2,)) == (2,)


async def test_idle_connections_that_the_server_closed_are_replaced_unseen(pool: Pool, conn: SyncConnection) -> None:
    async with pool.reading() as one, pool.reading() as other:
        ids = [await connection_id(one), await connection_id(other)]
    for number in ids:
        conn.execute("KILL CONNECTION %s", (number,))
    await eventually(lambda: not any(idle.is_reusable for idle, _, _ in pool._idle))  # the news has arrived
    async with pool.reading() as reader:
        assert await connection_id(reader) not in ids


async def test_a_reader_whose_connection_is_lost_is_told_that_the_database_is_unavailable(
    pool: Pool, conn: SyncConnection
) -> None:
    async def read() -> None:
        async with pool.reading() as reader:
            conn.execute("KILL CONNECTION %s", (await connection_id(reader),))
            await reader.fetch_one("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        await read()
    async with pool.reading() as reader:
        assert await reader.fetch_one("SELECT 1") == (1,)


async def test_the_pool_outlives_a_server_that_was_killed(scratch: Path, make_pool: MakePool) -> None:
    private = PrivateDatabase(scratch / "killed")
    child = private.start()
    pool = make_pool(private.address)
    async with pool.reading() as conn:
        assert await conn.fetch_one("SELECT 1") == (1,)
    child.process.kill()
    child.process.wait()
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable):
            async with pool.reading() as conn:
                await conn.fetch_one("SELECT 1")
    with pytest.raises(DatabaseUnavailable):
        await pool.transaction(lambda conn: conn.fetch_one("SELECT 1"))
    child = private.start()
    try:
        async with pool.reading() as conn:
            assert await conn.fetch_one("SELECT 1") == (1,)
    finally:
        child.stop()


async def test_a_wrong_password_is_unavailable_and_not_printed(address: DatabaseAddress, make_pool: MakePool) -> None:
    pool = make_pool(replace(address, password="not-the-password"))
    with pytest.raises(DatabaseUnavailable) as caught:
        async with pool.reading():
            pass
    assert "not-the-password" not in str(caught.value)
    assert address.password not in str(caught.value)


# -- cancellation ----------------------------------------------------------------------------------------


async def test_a_connection_whose_reader_was_cancelled_is_never_used_again(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    before = counted("novel_database_discarded_total", reason="unfinished")
    ids: list[int] = []

    async def read() -> None:
        async with pool.reading() as conn:
            ids.append(await connection_id(conn))
            await conn.fetch_one(SLEEP, (5,))

    task = asyncio.create_task(read())
    await eventually(lambda: ids)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with pool.reading() as conn:
        assert await connection_id(conn) != ids[0]
        assert await conn.fetch_one("SELECT %s", ("mine",)) == ("mine",)
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


async def test_one_connection_runs_one_statement_at_a_time(make_pool: MakePool) -> None:
    pool = make_pool(size=1)
    async with pool.reading() as conn:
        slow = asyncio.create_task(conn.fetch_one(SLEEP, (0.2,)))
        await asyncio.sleep(0.02)
        with pytest.raises(RuntimeError, match="one statement at a time"):
            await conn.fetch_one("SELECT 1")
        assert await slow == (0,)


# -- bounds ----------------------------------------------------------------------------------------------


async def test_when_every_connection_is_in_use_the_wait_is_bounded(make_pool: MakePool) -> None:
    pool = make_pool(size=1, wait_seconds=0.05)
    async with pool.reading():
        with pytest.raises(DatabaseUnavailable, match="every database connection is in use"):
            async with pool.reading():
                pass
    async with pool.reading() as conn:
        assert await conn.fetch_one("SELECT 1") == (1,)


async def test_waiting_borrowers_get_their_turn_and_cancelled_ones_cost_no_place(make_pool: MakePool) -> None:
    pool = make_pool(size=2)

    async def borrow() -> None:
        async with pool.reading() as conn:
            await conn.fetch_one(SLEEP, (0.01,))

    tasks = [asyncio.create_task(borrow()) for _ in range(20)]
    await asyncio.sleep(0.01)
    for task in tasks[5::3]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for result in results if result and not isinstance(result, asyncio.CancelledError)] == []
    async with pool.reading(), pool.reading():
        pass


async def test_at_most_size_connections_are_open(make_pool: MakePool) -> None:
    pool = make_pool(size=3)
    ids: set[int] = set()

    async def borrow() -> None:
        async with pool.reading() as conn:
            ids.add(await connection_id(conn))

    await asyncio.gather(*(borrow() for _ in range(50)))
    assert len(ids) <= 3


async def test_a_statement_past_its_limit_is_ended_and_the_connection_goes_on(make_pool: MakePool) -> None:
    pool = make_pool(size=1, statement_seconds=0.1)
    async with pool.reading() as conn:
        before = await connection_id(conn)
        with pytest.raises(StatementTimeout):
            await conn.fetch_one("SELECT SLEEP(%s) FROM wp_novel_stories UNION SELECT SLEEP(%s)", (5, 5))
    async with pool.reading() as conn:
        assert await connection_id(conn) == before
        assert await conn.fetch_one("SELECT %s", (1,)) == (1,)


async def test_a_closed_pool_leaves_no_connection_on_the_server(make_pool: MakePool, conn: SyncConnection) -> None:
    pool = make_pool()
    async with contextlib.AsyncExitStack() as stack:
        conns = [await stack.enter_async_context(pool.reading()) for _ in range(3)]
        ids = [await connection_id(lent) for lent in conns]
    await pool.close()
    alive = "SELECT COUNT(*) FROM information_schema.processlist WHERE id IN (%s, %s, %s)"
    await eventually(lambda: conn.fetch_all(alive, ids) == [(0,)])
