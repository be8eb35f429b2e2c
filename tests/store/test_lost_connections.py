"""Connections that break at every moment: nothing is done twice, nothing is believed that is not known."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.addresses import DatabaseAddress
from schema.connection import Connection as SyncConnection
from schema.private_database import PrivateDatabase
from store import connection
from store.connection import Connection
from store.errors import CommitUncertain, DatabaseUnavailable
from store.pool import Pool
from tests.store.conftest import MakePool
from tests.store.counting import ADD, connection_id, eventually, value
from tests.store.wire import Wire


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
