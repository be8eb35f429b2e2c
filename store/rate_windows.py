"""Quotas: at most so many requests and bytes of one scope in any window of time.

The window slides in sixty steps. Redis counts, with its own clock, in one script; while it is away the database
counts, with its clock. What is refused is not counted.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from store.connection import Connection
from store.pool import Pool
from store.redis_link import RedisLink

STEPS = 60

# A hash of the steps in the window: "r<step>" counts requests, "b<step>" bytes.
_TAKE = """
local step_seconds, steps = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = tonumber(redis.call('TIME')[1])
local current = math.floor(now / step_seconds)
local requests, bytes, oldest = 0, 0, current
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local step = tonumber(string.sub(fields[i], 2))
  if step <= current - steps then
    redis.call('HDEL', KEYS[1], fields[i])
  else
    if step < oldest then oldest = step end
    if string.sub(fields[i], 1, 1) == 'r' then requests = requests + tonumber(fields[i + 1])
    else bytes = bytes + tonumber(fields[i + 1]) end
  end
end
if requests + 1 > tonumber(ARGV[3]) or bytes + tonumber(ARGV[4]) > tonumber(ARGV[5]) then
  return (oldest + steps) * step_seconds - now
end
redis.call('HINCRBY', KEYS[1], 'r' .. current, 1)
redis.call('HINCRBY', KEYS[1], 'b' .. current, ARGV[4])
redis.call('EXPIRE', KEYS[1], step_seconds * (steps + 1))
return 0
"""
# PRIMARY. The row of step 0 is only there to be locked: who holds it counts alone.
_LOCK = """
    INSERT INTO wp_novel_rate_windows (scope, bucket, expires_at)
    VALUES (%s, 0, UTC_TIMESTAMP() + INTERVAL %s SECOND)
    ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at)
"""
_NOW = "SELECT UNIX_TIMESTAMP()"
# PRIMARY, at most sixty rows.
_COUNT = """
    SELECT COALESCE(SUM(requests), 0), COALESCE(SUM(bytes), 0), COALESCE(MIN(bucket), 0)
    FROM wp_novel_rate_windows WHERE scope = %s AND bucket > %s
"""
_ADD = """
    INSERT INTO wp_novel_rate_windows (scope, bucket, requests, bytes, expires_at)
    VALUES (%s, %s, 1, %s, UTC_TIMESTAMP() + INTERVAL %s SECOND)
    ON DUPLICATE KEY UPDATE requests = requests + 1, bytes = bytes + VALUES(bytes)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    requests: int
    bytes: int = 1 << 50
    window_seconds: int = 60

    @property
    def step_seconds(self) -> int:
        return max(1, math.ceil(self.window_seconds / STEPS))


Fallback = Callable[[], Awaitable[int]]


async def take(redis: RedisLink, scope: str, limit: Limit, *, size: int = 0, fallback: Fallback) -> int:
    """Count a request; 0, or the seconds after which it is worth trying again."""
    arguments: list[Any] = [limit.step_seconds, STEPS, limit.requests, size, limit.bytes]
    return int(
        await redis.run(
            "rate_limit",
            lambda client: client.eval(_TAKE, 1, f"novel:ratelimit:{scope}", *arguments),
            fallback=fallback,
        )
    )


def in_database(pool: Pool, scope: str, limit: Limit, *, size: int = 0) -> Fallback:
    """The same count without Redis."""
    step_seconds, lifetime = limit.step_seconds, limit.step_seconds * (STEPS + 1)

    async def count(conn: Connection) -> int:
        await conn.execute(_LOCK, (scope, lifetime))
        now = await conn.fetch_one(_NOW)
        assert now is not None
        current = int(now[0]) // step_seconds
        row = await conn.fetch_one(_COUNT, (scope, max(current - STEPS, 0)))
        assert row is not None
        requests, counted_bytes, oldest = (int(value) for value in row)
        if requests + 1 > limit.requests or counted_bytes + size > limit.bytes:
            return max(1, (oldest + STEPS) * step_seconds - int(now[0]))
        await conn.execute(_ADD, (scope, current, size, lifetime))
        return 0

    return lambda: pool.transaction(count)
