"""The bell: who listens hears it, and a Redis that dies costs no more than what it rang meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from runtime import children, settings
from runtime.private_redis import PrivateRedis
from runtime.settings import Settings
from store import payloads, wakeups
from store.redis_link import RedisLink
from tests.store.counting import eventually


def impatient(url: str) -> RedisLink:
    """Tries a lost Redis again at once."""
    return RedisLink(
        settings.load(
            {"NOVEL_REDIS_URL": url, "NOVEL_REDIS_TIMEOUT_SECONDS": "0.3", "NOVEL_REDIS_RETRY_SECONDS": "0.1"}
        ).redis
    )


@pytest.fixture
async def link(redis_url: str) -> AsyncIterator[RedisLink]:
    link = impatient(redis_url)
    yield link
    await link.close()


@dataclass
class Listener:
    heard: int = 0
    task: "asyncio.Task[None]" = field(init=False)

    def __call__(self) -> None:
        self.heard += 1


@contextlib.asynccontextmanager
async def listening(link: RedisLink, job_type: str = payloads.STORIES) -> AsyncIterator[Listener]:
    listener = Listener()
    listener.task = asyncio.create_task(wakeups.listen(link, job_type, listener))
    try:
        # It looks once when it has begun to listen: what was rung before then.
        await eventually(lambda: listener.heard)
        yield listener
    finally:
        listener.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener.task


async def heard(listener: Listener, times: int) -> None:
    await eventually(lambda: listener.heard == times)


async def subscribers(redis_url: str, job_type: str = payloads.STORIES) -> int:
    async with Redis.from_url(redis_url) as redis:
        ((_, count),) = await redis.pubsub_numsub(f"novel:due:{job_type}")
        return int(count)


async def test_every_listener_hears_each_ring(link: RedisLink) -> None:
    async with listening(link) as first, listening(link) as second:
        for rings in range(1, 4):
            await wakeups.ring(link, payloads.STORIES)
            await heard(first, 1 + rings)
            await heard(second, 1 + rings)


async def test_a_ring_is_heard_only_by_those_who_listen_for_its_type(link: RedisLink) -> None:
    async with listening(link) as stories, listening(link, payloads.CHAPTERS) as chapters:
        await wakeups.ring(link, payloads.CHAPTERS)
        await wakeups.ring(link, payloads.CHAPTERS)
        await heard(chapters, 3)
        assert stories.heard == 1


async def test_who_is_cancelled_listens_no_more(link: RedisLink, redis_url: str) -> None:
    async with listening(link):
        assert await subscribers(redis_url) == 1
    async with asyncio.timeout(20):
        while await subscribers(redis_url):
            await asyncio.sleep(0.01)


async def test_silence_is_no_failure(link: RedisLink, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it lasts: the time that Redis gets for an answer is none for a ring."""
    monkeypatch.setattr(wakeups, "LISTEN_SECONDS", 0.4)  # longer than Redis gets for an answer
    get_message, asked = PubSub.get_message, 0

    async def counted(self: PubSub, **arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return await get_message(self, **arguments)

    monkeypatch.setattr(PubSub, "get_message", counted)
    async with listening(link) as listener, Redis.from_url(redis_url) as redis:
        before = (await redis.info("stats"))["total_connections_received"]
        await eventually(lambda: asked > 3)
        assert (await redis.info("stats"))["total_connections_received"] == before
        assert listener.heard == 1
        await wakeups.ring(link, payloads.STORIES)
        await heard(listener, 2)


async def test_without_redis_nobody_rings_and_nobody_listens(test_settings: Settings) -> None:
    link = RedisLink(settings.load({}).redis)
    listener = Listener()
    async with asyncio.timeout(20):
        await wakeups.ring(link, payloads.STORIES)
        await wakeups.listen(link, payloads.STORIES, listener)
    assert listener.heard == 0


@pytest.fixture
def mortal(scratch: Path) -> PrivateRedis:
    redis = PrivateRedis(scratch / "redis-wakeups")
    redis.prepare()
    return redis


async def test_a_listener_finds_redis_again_and_looks_what_it_has_missed(mortal: PrivateRedis) -> None:
    child = children.start(mortal.command())
    mortal.wait(child)
    link = impatient(mortal.url)
    try:
        async with listening(link) as listener:
            child.process.kill()
            child.process.wait()
            await wakeups.ring(link, payloads.STORIES)  # nobody hears it, and it does not fail
            assert listener.heard == 1
            child = children.start(mortal.command())
            mortal.wait(child)
            await heard(listener, 2)
            await ring_until_heard(link, listener, 3)
    finally:
        await link.close()
        child.stop()


async def ring_until_heard(link: RedisLink, listener: Listener, times: int) -> None:
    """The first may be lost: a link that found Redis gone leaves it alone for a moment."""
    async with asyncio.timeout(20):
        while listener.heard < times:
            await wakeups.ring(link, payloads.STORIES)
            await asyncio.sleep(0.02)
