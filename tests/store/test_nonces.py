"""Nonces in the table that decides and in the Redis that remembers."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from runtime import settings
from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import nonces
from store.connection import Connection
from store.nonces import NonceUsed
from store.pool import Pool
from store.redis_link import RedisLink
from tests.store.conftest import MakePool

KEY = "nk_4f1c09aa.1"


@pytest.fixture
def nonce() -> bytes:
    return nonces.fingerprint(KEY, uuid4().hex)


@pytest.fixture
async def link(test_settings: Settings) -> AsyncIterator[RedisLink]:
    link = RedisLink(test_settings.redis)
    yield link
    await link.close()


async def take(pool: Pool, nonce: bytes) -> bool:
    """Whether the nonce could be taken."""

    async def work(conn: Connection) -> None:
        await nonces.take(conn, nonce, KEY)

    try:
        await pool.transaction(work)
    except NonceUsed:
        return False
    return True


async def is_taken(pool: Pool, nonce: bytes) -> bool:
    async with pool.reading() as conn:
        return await nonces.is_taken(conn, nonce)


def end(conn: PlainConnection, nonce: bytes, *, seconds: int = -1) -> None:
    conn.execute(
        "UPDATE wp_novel_nonce_replay SET expires_at = UTC_TIMESTAMP() + INTERVAL %s SECOND WHERE nonce_hash = %s",
        (seconds, nonce),
    )


def test_a_fingerprint_belongs_to_a_key_and_a_nonce() -> None:
    pairs = [("a", "b"), ("ab", ""), ("", "ab"), ("b", "a"), ("a", "B"), ("a\0b", ""), ("a", "bc")]
    assert len({nonces.fingerprint(*pair) for pair in pairs}) == len(pairs)
    assert {len(nonces.fingerprint(*pair)) for pair in pairs} == {32}


async def test_a_nonce_can_be_taken_once(pool: Pool, conn: PlainConnection, nonce: bytes) -> None:
    assert not await is_taken(pool, nonce)
    assert await take(pool, nonce)
    assert await is_taken(pool, nonce)
    assert not await take(pool, nonce)
    assert await take(pool, nonces.fingerprint("another key", "n"))
    assert (nonce, KEY) in conn.fetch_all("SELECT nonce_hash, key_id FROM wp_novel_nonce_replay")


async def test_a_nonce_of_a_transaction_that_fails_is_not_taken(pool: Pool, nonce: bytes) -> None:
    async def work(conn: Connection) -> None:
        await nonces.take(conn, nonce, KEY)
        raise LookupError("no")

    with pytest.raises(LookupError):
        await pool.transaction(work)
    assert not await is_taken(pool, nonce)
    assert await take(pool, nonce)


async def test_a_nonce_lasts_ten_minutes_and_is_good_again_after_them(
    pool: Pool, conn: PlainConnection, nonce: bytes
) -> None:
    assert await take(pool, nonce)
    [(seconds,)] = conn.fetch_all(
        "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), expires_at) FROM wp_novel_nonce_replay"
    )
    assert 650 <= seconds <= 660
    end(conn, nonce, seconds=30)
    assert not await take(pool, nonce)
    end(conn, nonce)
    assert not await is_taken(pool, nonce)
    assert await take(pool, nonce)
    assert await is_taken(pool, nonce)
    assert not await take(pool, nonce)


async def test_of_two_at_once_the_second_waits_for_the_first(make_pool: MakePool, nonce: bytes) -> None:
    first, second = make_pool(), make_pool()
    has_taken, may_end = asyncio.Event(), asyncio.Event()

    async def slow(conn: Connection) -> None:
        await nonces.take(conn, nonce, KEY)
        has_taken.set()
        await may_end.wait()

    holder = asyncio.create_task(first.transaction(slow))
    await has_taken.wait()
    waiter = asyncio.create_task(take(second, nonce))
    done, _ = await asyncio.wait({waiter}, timeout=0.1)
    assert not done
    may_end.set()
    await holder
    assert not await waiter


async def test_when_the_first_of_two_gives_up_the_second_gets_the_nonce(make_pool: MakePool, nonce: bytes) -> None:
    first, second = make_pool(), make_pool()
    has_taken, may_end = asyncio.Event(), asyncio.Event()

    async def failing(conn: Connection) -> None:
        await nonces.take(conn, nonce, KEY)
        has_taken.set()
        await may_end.wait()
        raise LookupError("no")

    holder = asyncio.create_task(first.transaction(failing))
    await has_taken.wait()
    waiter = asyncio.create_task(take(second, nonce))
    await asyncio.wait({waiter}, timeout=0.1)
    may_end.set()
    assert await waiter
    with pytest.raises(LookupError):
        await holder


@pytest.mark.parametrize("is_there", ["new", "expired"])
async def test_of_many_at_once_one_gets_the_nonce(
    make_pool: MakePool, conn: PlainConnection, nonce: bytes, is_there: str
) -> None:
    pools = [make_pool(), make_pool()]
    if is_there == "expired":
        await take(pools[0], nonce)
        end(conn, nonce)
    taken = await asyncio.gather(*(take(pools[number % 2], nonce) for number in range(20)))
    assert sum(taken) == 1


async def test_redis_remembers_what_it_is_told(link: RedisLink, nonce: bytes) -> None:
    assert not await nonces.is_remembered(link, nonce)
    await nonces.remember(link, nonce)
    assert await nonces.is_remembered(link, nonce)


async def test_without_redis_nothing_is_remembered_and_nothing_fails(nonce: bytes) -> None:
    link = RedisLink(settings.load({}).redis)
    await nonces.remember(link, nonce)
    assert not await nonces.is_remembered(link, nonce)
    await link.close()
