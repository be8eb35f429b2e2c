"""The pool on a real server: its session, and its bounds."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from runtime import settings
from runtime.addresses import DatabaseAddress, parse_database
from schema import connection
from schema.connection import Connection as SyncConnection
from store.connection import Connection
from store.errors import DatabaseUnavailable, StatementTimeout
from store.pool import Pool
from tests.conftest import DatabaseServer
from tests.store.conftest import MakePool
from tests.store.counting import ADD, READ, connection_id, eventually

SLEEP = "SELECT SLEEP(%s)"


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
        await pool.close()  # while they are lent: they close when they come back
    alive = "SELECT COUNT(*) FROM information_schema.processlist WHERE id IN (%s, %s, %s)"
    await eventually(lambda: conn.fetch_all(alive, ids) == [(0,)])


async def test_a_password_may_have_any_letters(
    address: DatabaseAddress, make_pool: MakePool, database_server: DatabaseServer
) -> None:
    password = "mật khẩu: 密码 /?#@%"
    with database_server.as_root() as root, root.cursor() as cursor:
        cursor.execute("CREATE USER vietnamese@'%' IDENTIFIED BY 'x'")
        cursor.execute("SET PASSWORD FOR vietnamese@'%%' = PASSWORD(%s)", (password,))
        cursor.execute("GRANT ALL ON *.* TO vietnamese@'%'")
        try:
            own = parse_database(replace(address, user="vietnamese", password=password).url)
            async with make_pool(own).reading() as conn:
                assert await conn.fetch_one("SELECT 1") == (1,)
            with connection.connect(settings.load({"NOVEL_DATABASE_URL": own.url}).database) as sync_conn:
                assert sync_conn.fetch_one("SELECT 1") == (1,)
        finally:
            cursor.execute("DROP USER vietnamese@'%'")
