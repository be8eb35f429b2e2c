"""Redis on a real server that is killed, stopped and started again: the fallback answers, and the way back is found."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis
from structlog.testing import capture_logs

from runtime import children, settings
from runtime.children import Child
from runtime.private_redis import PrivateRedis
from store.breaker import FAILURES_TO_OPEN
from store.redis_link import RedisLink


class Server:
    """A Redis of this test alone."""

    def __init__(self, directory: Path) -> None:
        self.private = PrivateRedis(directory)
        self.private.prepare()
        self.child = self.start()

    def start(self) -> Child:
        self.child = children.start(self.private.command())
        self.private.wait(self.child)
        return self.child

    def kill(self) -> None:
        self.child.process.kill()
        self.child.process.wait()


@pytest.fixture(scope="module")
def directory(scratch: Path) -> Path:
    return scratch / "redis-link"


@pytest.fixture
def server(directory: Path) -> Iterator[Server]:
    server = Server(directory)
    yield server
    server.child.stop()


@pytest.fixture
async def link(server: Server) -> AsyncIterator[RedisLink]:
    """Impatient: it tries a lost Redis again at once."""
    loaded = settings.load(
        {
            "NOVEL_REDIS_URL": server.private.url,
            "NOVEL_REDIS_TIMEOUT_SECONDS": "0.3",
            "NOVEL_REDIS_RETRY_SECONDS": "0.1",
        }
    )
    link = RedisLink(loaded.redis)
    yield link
    await link.close()


async def count(link: RedisLink, use: str = "test") -> int:
    """Counts in Redis; -1 says that the fallback answered."""

    async def command(redis: Redis) -> int:
        return int(await redis.incr("counter"))

    async def fallback() -> int:
        return -1

    return await link.run(use, command, fallback=fallback)


def fallbacks(use: str = "test") -> float:
    return REGISTRY.get_sample_value("novel_redis_fallbacks_total", {"use": use}) or 0.0


async def until_it_counts(link: RedisLink) -> None:
    async with asyncio.timeout(20):
        while await count(link) == -1:
            await asyncio.sleep(0.02)


async def test_a_command_runs_on_redis(link: RedisLink) -> None:
    before = fallbacks()
    assert await count(link) > 0
    assert fallbacks() == before


async def test_without_a_redis_the_fallback_answers_and_is_counted() -> None:
    link = RedisLink(settings.load({}).redis)
    before = fallbacks("none")
    assert not link.is_configured
    assert await count(link, "none") == -1
    assert fallbacks("none") == before + 1
    await link.ping()
    await link.close()


async def test_a_killed_redis_costs_nothing_but_its_fallback_and_is_found_again(
    link: RedisLink, server: Server
) -> None:
    with capture_logs() as events:
        await count(link)
        server.kill()
        assert [await count(link) for _ in range(FAILURES_TO_OPEN * 3)] == [-1] * FAILURES_TO_OPEN * 3
        server.start()
        await until_it_counts(link)
        assert await count(link) > 0
    said = [event["event"] for event in events if event["event"].startswith("redis.")]
    assert [event for event in said if event != "redis.failed"] == ["redis.lost", "redis.back"]
    assert said[:FAILURES_TO_OPEN] == ["redis.failed"] * FAILURES_TO_OPEN


async def test_a_redis_that_hangs_is_left_alone_after_a_few_timeouts(link: RedisLink, server: Server) -> None:
    await count(link)
    os.kill(server.child.pid, signal.SIGSTOP)
    try:
        for _ in range(FAILURES_TO_OPEN):
            assert await count(link) == -1
        tried = 0

        async def command(redis: Redis) -> int:
            nonlocal tried
            tried += 1
            return int(await redis.incr("counter"))

        async def fallback() -> int:
            return -1

        for _ in range(100):
            assert await link.run("test", command, fallback=fallback) == -1
        assert tried <= 5
    finally:
        os.kill(server.child.pid, signal.SIGCONT)
    await until_it_counts(link)


async def test_more_callers_than_connections_wait_for_their_turn(link: RedisLink) -> None:
    results = await asyncio.gather(*(count(link) for _ in range(300)))
    assert len(set(results)) == 300
    assert -1 not in results


async def test_a_cancelled_command_never_gives_its_answer_to_another(link: RedisLink) -> None:
    async def echo(number: int) -> object:
        async def command(redis: Redis) -> object:
            return await redis.echo(str(number))

        async def fallback() -> object:
            return None

        return await link.run("echo", command, fallback=fallback)

    tasks = [asyncio.create_task(echo(number)) for number in range(300)]
    for number, task in enumerate(tasks):
        if number % 2:
            await asyncio.sleep(0)
            task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    for number, answer in enumerate(answers):
        if not isinstance(answer, asyncio.CancelledError):
            assert answer in (None, str(number).encode())
    assert await echo(7) == b"7"


async def test_an_error_in_the_callers_own_code_is_not_taken_for_an_outage(link: RedisLink) -> None:
    async def command(redis: Redis) -> int:
        raise LookupError("no")

    async def fallback() -> int:
        return -1

    with pytest.raises(LookupError):
        await link.run("test", command, fallback=fallback)


async def test_a_command_that_redis_refuses_is_an_error_in_the_log_and_falls_back(link: RedisLink) -> None:
    async def command(redis: Redis) -> int:
        await redis.set("text", "words")
        return int(await redis.incr("text"))

    async def fallback() -> int:
        return -1

    with capture_logs() as events:
        assert await link.run("test", command, fallback=fallback) == -1
    [event] = [event for event in events if event["event"] == "redis.failed"]
    assert event["log_level"] == "error"
    assert "not an integer" in event["error"]
