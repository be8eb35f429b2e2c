"""A bell for workers that wait: whoever has queued something rings it over Redis.

It is a hint and no more. A bell that is not heard costs a worker the rest of its pause between two looks at the queue.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from redis.asyncio import Redis

from runtime import logs
from store.redis_link import RedisLink

log = logs.get(__name__)

USE: Final = "wake_up"
LISTEN_SECONDS = 5.0


async def ring(redis: RedisLink, job_type: str) -> None:
    """Say that something of this type is due."""

    async def command(client: Redis) -> None:
        await client.publish(_channel(job_type), b"1")

    await redis.run(USE, command, fallback=_nothing)


async def listen(redis: RedisLink, job_type: str, heard: Callable[[], None]) -> None:
    """Call `heard` at each ring, for as long as this task is not cancelled."""

    async def command(client: Redis) -> None:
        async with client.pubsub(ignore_subscribe_messages=True) as bell:
            await bell.subscribe(_channel(job_type))
            heard()  # what was rung while nobody listened
            while True:
                if await bell.get_message(timeout=LISTEN_SECONDS) is not None:
                    heard()

    task = asyncio.current_task()
    # redis-py can swallow a cancellation while it connects.
    while redis.is_configured and not (task and task.cancelling()):
        await redis.run(USE, command, fallback=_nothing)
        await asyncio.sleep(redis.retry_seconds)


def _channel(job_type: str) -> str:
    return f"novel:due:{job_type}"


async def _nothing() -> None:
    return None
