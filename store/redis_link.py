"""Redis, which is optional: every use names what happens without it.

`await link.run("nonce", lambda redis: redis.set(...), fallback=...)`. When Redis is not configured, is too slow or is
gone, the fallback answers; a breaker keeps a dead Redis from costing each request its timeout.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from prometheus_client import Counter
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from runtime import logs
from runtime.settings import RedisSettings
from store.breaker import Breaker

log = logs.get(__name__)

T = TypeVar("T")
MAX_CONNECTIONS = 50

FALLBACKS = Counter("novel_redis_fallbacks_total", "Uses of Redis that its fallback answered", labelnames=("use",))


class RedisLink:
    """The way to Redis, or around it."""

    def __init__(self, settings: RedisSettings) -> None:
        self._breaker = Breaker(retry_seconds=settings.retry_seconds)
        self._timeout_seconds = settings.timeout_seconds
        self.retry_seconds = settings.retry_seconds
        # Who finds no connection free has not found Redis gone: that must not open the breaker.
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)
        self._redis: Redis | None = None
        if settings.address is not None:
            pool = ConnectionPool.from_url(
                settings.address.url,
                max_connections=MAX_CONNECTIONS,
                socket_timeout=settings.timeout_seconds,
                socket_connect_timeout=settings.timeout_seconds,
                retry=Retry(NoBackoff(), 0),
            )
            self._redis = Redis(connection_pool=pool)

    @property
    def is_configured(self) -> bool:
        return self._redis is not None

    async def run(
        self, use: str, command: Callable[[Redis], Awaitable[T]], *, fallback: Callable[[], Awaitable[T]]
    ) -> T:
        """Run a command on Redis, or its fallback."""
        if self._redis is not None and self._breaker.allows(time.monotonic()) and await self._has_place(use):
            try:
                result = await command(self._redis)
            except (RedisError, OSError, TimeoutError) as error:
                # An answer that says no is a mistake of ours or a full Redis, and wants to be seen.
                level = log.error if isinstance(error, ResponseError) else log.warning
                level("redis.failed", use=use, error=f"{type(error).__name__}: {error}")
                if self._breaker.failed(time.monotonic()):
                    log.warning("redis.lost", use=use)
            else:
                if self._breaker.succeeded():
                    log.info("redis.back", use=use)
                return result
            finally:
                self._places.release()
        FALLBACKS.labels(use).inc()
        return await fallback()

    async def ping(self) -> None:
        """Raise unless Redis answers."""
        if self._redis is not None:
            async with self._places:
                await self._redis.ping()

    async def _has_place(self, use: str) -> bool:
        if not self._places.locked():
            return await self._places.acquire()  # at once
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._places.acquire()
        except TimeoutError:
            log.warning("redis.busy", use=use)
            return False

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose(close_connection_pool=True)
