"""Quotas counted by Redis and by the database: both by the same rules, and never past the limit."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from runtime import settings
from runtime.settings import Settings
from store import rate_windows
from store.pool import Pool
from store.rate_windows import STEPS, Limit
from store.redis_link import RedisLink
from tests.store.conftest import MakePool

LIMIT = Limit(requests=3, bytes=1000)


async def never() -> int:
    raise AssertionError("Redis is there")


class InRedis:
    def __init__(self, settings: Settings, client: Redis) -> None:
        self._client = client
        patient = replace(settings.redis, timeout_seconds=5.0)  # sixty at once, on a busy machine
        self._links = [RedisLink(patient), RedisLink(patient)]

    async def take(self, scope: str, limit: Limit = LIMIT, *, size: int = 0, from_other: bool = False) -> int:
        return await rate_windows.take(self._links[from_other], scope, limit, size=size, fallback=never)

    async def age(self, scope: str, steps: int) -> None:
        """Make what was counted older."""
        name = f"novel:ratelimit:{scope}"
        counts: dict[Any, Any] = await self._client.hgetall(name)
        await self._client.delete(name)
        for field, value in counts.items():
            await self._client.hset(name, f"{field[0]}{int(field[1:]) - steps}", value)

    async def close(self) -> None:
        for link in self._links:
            await link.close()


class InDatabase:
    def __init__(self, make_pool: MakePool) -> None:
        self._pools: list[Pool] = [make_pool(), make_pool()]

    async def take(self, scope: str, limit: Limit = LIMIT, *, size: int = 0, from_other: bool = False) -> int:
        return await rate_windows.in_database(self._pools[from_other], scope, limit, size=size)()

    async def age(self, scope: str, steps: int) -> None:
        async with self._pools[0].reading() as conn:
            await conn.execute(
                "UPDATE wp_novel_rate_windows SET bucket = bucket - %s WHERE scope = %s AND bucket > 0 ORDER BY bucket",
                (steps, scope),
            )

    async def close(self) -> None:
        pass


Windows = InRedis | InDatabase


@pytest.fixture(params=["redis", "database"])
async def windows(
    request: pytest.FixtureRequest, test_settings: Settings, redis_url: str, make_pool: MakePool
) -> AsyncIterator[Windows]:
    async with Redis.from_url(redis_url, decode_responses=True) as client:
        made: Windows = InRedis(test_settings, client) if request.param == "redis" else InDatabase(make_pool)
        yield made
        await made.close()


@pytest.fixture
def scope() -> str:
    return f"test:{uuid4().hex}"


async def test_past_its_requests_a_scope_has_to_wait(windows: Windows, scope: str) -> None:
    assert [await windows.take(scope) for _ in range(3)] == [0, 0, 0]
    for _ in range(3):
        assert 1 <= await windows.take(scope) <= 60


async def test_past_its_bytes_a_scope_has_to_wait_but_what_fits_is_let_in(windows: Windows, scope: str) -> None:
    assert await windows.take(scope, size=600) == 0
    assert 1 <= await windows.take(scope, size=401) <= 60
    assert await windows.take(scope, size=400) == 0
    assert 1 <= await windows.take(scope, size=1) <= 60
    assert await windows.take(scope, size=0) == 0


async def test_more_bytes_than_the_whole_quota_are_never_let_in(windows: Windows, scope: str) -> None:
    for _ in range(2):
        assert 1 <= await windows.take(scope, size=1001) <= 60


async def test_large_counts_are_exact(windows: Windows, scope: str) -> None:
    limit = Limit(requests=10, bytes=(1 << 40) + 1)
    assert await windows.take(scope, limit, size=1 << 40) == 0
    assert await windows.take(scope, limit, size=2) > 0
    assert await windows.take(scope, limit, size=1) == 0


async def test_scopes_are_counted_apart_byte_by_byte(windows: Windows, scope: str) -> None:
    limit = Limit(requests=1)
    for each in (scope, scope.upper(), scope + " ", scope + "é"):
        assert await windows.take(each, limit) == 0
        assert await windows.take(each, limit) > 0


async def test_what_is_refused_is_not_counted(windows: Windows, scope: str) -> None:
    for _ in range(3):
        await windows.take(scope)
    await windows.age(scope, STEPS // 2)
    assert [bool(await windows.take(scope)) for _ in range(5)] == [True] * 5
    await windows.age(scope, STEPS // 2)
    assert [await windows.take(scope) for _ in range(3)] == [0, 0, 0]


async def test_the_window_slides_and_tells_how_long_to_wait(windows: Windows, scope: str) -> None:
    assert await windows.take(scope) == 0
    await windows.age(scope, 20)
    assert await windows.take(scope) == 0
    await windows.age(scope, 20)
    assert await windows.take(scope) == 0
    assert 1 <= await windows.take(scope) <= 20  # until the first is a window old
    await windows.age(scope, 20)
    assert await windows.take(scope) == 0
    assert 1 <= await windows.take(scope) <= 20  # now until the second is


async def test_bytes_slide_out_of_the_window_too(windows: Windows, scope: str) -> None:
    assert await windows.take(scope, size=1000) == 0
    await windows.age(scope, STEPS)
    assert await windows.take(scope, size=1000) == 0
    assert await windows.take(scope, size=1) > 0


async def test_a_long_window_has_longer_steps(windows: Windows, scope: str) -> None:
    limit = Limit(requests=1, window_seconds=600)
    assert limit.step_seconds == 10
    assert await windows.take(scope, limit) == 0
    assert 60 < await windows.take(scope, limit) <= 600
    await windows.age(scope, STEPS - 2)
    assert 1 <= await windows.take(scope, limit) <= 20
    await windows.age(scope, 2)
    assert await windows.take(scope, limit) == 0


@pytest.mark.parametrize("requests", [0, 1])
async def test_a_limit_may_be_none_at_all(windows: Windows, scope: str, requests: int) -> None:
    """So the first wrong signature can lock a key."""
    taken = [await windows.take(scope, Limit(requests=requests, window_seconds=600)) for _ in range(2)]
    assert [wait == 0 for wait in taken] == [requests == 1, False]
    assert 1 <= taken[1] <= 600


async def test_of_many_at_once_from_two_connections_no_more_than_the_limit_get_in(windows: Windows, scope: str) -> None:
    limit = Limit(requests=10)
    taken = await asyncio.gather(*(windows.take(scope, limit, from_other=bool(number % 2)) for number in range(60)))
    assert sum(wait == 0 for wait in taken) == 10
    assert all(1 <= wait <= 60 for wait in taken if wait)


async def test_of_many_at_once_no_more_bytes_than_the_limit_get_in(windows: Windows, scope: str) -> None:
    limit = Limit(requests=1000, bytes=950)
    taken = await asyncio.gather(
        *(windows.take(scope, limit, size=100, from_other=bool(number % 2)) for number in range(40))
    )
    assert sum(wait == 0 for wait in taken) == 9


async def test_redis_forgets_a_scope_once_no_window_reaches_it(
    test_settings: Settings, redis_url: str, scope: str
) -> None:
    link = RedisLink(test_settings.redis)
    async with Redis.from_url(redis_url) as redis:
        await rate_windows.take(link, scope, Limit(requests=1, window_seconds=600), fallback=never)
        assert 600 <= await redis.ttl(f"novel:ratelimit:{scope}") <= 610
        await rate_windows.take(link, scope + "60", LIMIT, fallback=never)
        assert 59 <= await redis.ttl(f"novel:ratelimit:{scope}60") <= 61
    await link.close()


async def test_a_hash_in_redis_holds_no_more_than_one_window(
    test_settings: Settings, redis_url: str, scope: str
) -> None:
    link = RedisLink(test_settings.redis)
    async with Redis.from_url(redis_url) as redis:
        for step in range(500):
            await redis.hset(f"novel:ratelimit:{scope}", f"r{step}", "1")
        assert await rate_windows.take(link, scope, LIMIT, fallback=never) == 0
        assert await redis.hlen(f"novel:ratelimit:{scope}") == 2
    await link.close()


async def test_without_redis_the_fallback_counts(pool: Pool, scope: str) -> None:
    link = RedisLink(settings.load({}).redis)
    fallback = rate_windows.in_database(pool, scope, LIMIT)
    assert [await rate_windows.take(link, scope, LIMIT, fallback=fallback) for _ in range(3)] == [0, 0, 0]
    assert await rate_windows.take(link, scope, LIMIT, fallback=fallback) > 0
    await link.close()
