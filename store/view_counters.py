"""Views of stories and reads of chapters: counted in Redis, and now and then written to the database, each once.

Readers do INCR on `novel:views:{story_id}` and `novel:reads:{chapter_id}`. A flush takes some of these counters:

1. A script moves them, at once or not at all, into a hash of their own, `novel:flush:{id}`, and lists it in
   `novel:flushes`.
2. A transaction adds them to the tables and writes the flush's id into `place` of the task, if the turn is still ours.
3. The hash is deleted.

Whatever dies in between leaves a hash, and the id in `place` says whether that one was written. It can say so of one
hash only; so a hash is written only once the one in `place` is known to be deleted, and of several that were left (by a
process that was stopped and woken, say) each is written and deleted before the next. A Redis that forgets loses what it
had not handed over; one that goes back to an old snapshot brings back what it has handed over since.
"""

import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import orjson
from redis.asyncio import Redis

from runtime import logs
from store import upkeep
from store.connection import Connection
from store.pool import Pool
from store.redis_link import RedisLink
from store.upkeep import Turn

log = logs.get(__name__)

T = TypeVar("T")

USE: Final = "view_counters"
FLUSH_COUNTERS = 1000
# Keys that Redis looks at in one step of a scan.
SCAN_KEYS = 1000
MAX_ID: Final = (1 << 64) - 1

_LIST: Final = "novel:flushes"
# `views` and `reads` in one scan; what else it finds is left alone.
_PATTERN: Final = "novel:[vr][ie][ea][wd]s:*"
_COUNTER = re.compile(rb"novel:(views|reads):(.*)", re.DOTALL)
_ID = re.compile(rb"[1-9][0-9]{0,19}")
_VALUE = re.compile(rb"[0-9]{1,12}")
_FLUSH_ID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# KEYS: the flush's hash, the list of hashes, the counters. A value that no INCR makes is dropped and named; a trillion
# is none either, and would be one too many for a column in the end.
_MOVE = """
local dropped, moved = {}, 0
for i = 3, #KEYS do
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'string' and #value <= 12 and string.match(value, '^%d+$') then
    redis.call('HSET', KEYS[1], KEYS[i], value)
    moved = moved + 1
  elseif value then
    dropped[#dropped + 1] = KEYS[i]
  end
  redis.call('UNLINK', KEYS[i])
end
if moved > 0 then redis.call('SADD', KEYS[2], ARGV[1]) end
return {moved, dropped}
"""
_FORGET = """
redis.call('UNLINK', KEYS[1])
redis.call('SREM', KEYS[2], ARGV[1])
return 1
"""


@dataclass(frozen=True, slots=True)
class Flushed:
    counters: int
    place: str | None
    """The flush that was written last."""
    is_done: bool
    """Whether every counter was seen."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How often stories were viewed and chapters read."""

    views: dict[int, int] = field(default_factory=dict)
    reads: dict[int, int] = field(default_factory=dict)


class RedisAway(Exception):
    """Redis did not answer, or not in time: what it was asked for may have happened."""


async def flush(pool: Pool, redis: RedisLink, turn: Turn, *, may_go_on: Callable[[], bool]) -> Flushed:
    """Write what has been counted, as long as `may_go_on`; without Redis nothing. Raises TurnLost."""
    run = _Run(pool, redis, turn)
    is_done = True
    if redis.is_configured:
        try:
            is_done = await run.through(may_go_on)
        except RedisAway:
            log.info("view_counters.interrupted", counters=run.counters)
    return Flushed(run.counters, run.place, is_done)


class _Run:
    """One flush after the other, in one turn."""

    def __init__(self, pool: Pool, redis: RedisLink, turn: Turn) -> None:
        self._pool = pool
        self._redis = redis
        self._turn = turn
        self.place = turn.place
        self.counters = 0

    async def through(self, may_go_on: Callable[[], bool]) -> bool:
        """Finish what was left, then take all counters there are; says whether that was all."""
        # The one that was written comes first: as long as it is there, no other may be written.
        for flush_id in sorted(await unfinished(self._redis), key=lambda flush_id: (flush_id != self.place, flush_id)):
            await self._finish(flush_id)
        cursor, names = await scan(self._redis, 0)
        while True:
            is_over = not cursor or not may_go_on()
            while len(names) >= FLUSH_COUNTERS or (is_over and names):
                taken = [names.pop() for _ in range(min(len(names), FLUSH_COUNTERS))]
                if made := await move(self._redis, taken):
                    await self._finish(made)
            if is_over:
                return not cursor
            cursor, more = await scan(self._redis, cursor)
            names |= more

    async def _finish(self, flush_id: str) -> None:
        if flush_id != self.place:
            counts = await read(self._redis, flush_id)

            async def work(conn: Connection) -> None:
                await upkeep.remember(conn, self._turn, flush_id)
                await add(conn, counts)

            await self._pool.transaction(work)
            self.place = flush_id  # from now on, and before Redis is asked again: it was written
            self.counters += len(counts.views) + len(counts.reads)
        await forget(self._redis, flush_id)


# -- the steps ------------------------------------------------------------------------------------------


async def unfinished(redis: RedisLink) -> list[str]:
    """The flushes that are under way or were left. What is the id of none is taken from the list."""

    async def command(client: Redis) -> Collection[bytes]:
        members: Collection[bytes] = await cast(Awaitable[Any], client.smembers(_LIST))
        return members

    members = await _ask(redis, command)
    strange = [member for member in members if not _FLUSH_ID.fullmatch(member)]
    if strange:
        await _ask(redis, lambda client: client.srem(_LIST, *strange))
        _warn(strange)
    return [member.decode() for member in members if member not in strange]


async def scan(redis: RedisLink, cursor: int) -> tuple[int, set[bytes]]:
    """Some names of counters, and where to look for more; 0: there are none. Names that are none's are deleted."""

    async def command(client: Redis) -> tuple[int, list[bytes]]:
        return cast(tuple[int, list[bytes]], await client.scan(cursor, match=_PATTERN, count=SCAN_KEYS))

    cursor, found = await _ask(redis, command)
    names = {name for name in found if _COUNTER.fullmatch(name)}
    strange = [name for name in names if _of(name) is None]
    if strange:
        await _ask(redis, lambda client: client.unlink(*strange))
        _warn(strange)
    return cursor, names.difference(strange)


async def move(redis: RedisLink, names: Sequence[bytes]) -> str | None:
    """Take these counters into a flush of their own; returns its id, or None if there was nothing in them."""
    flush_id = str(uuid.uuid4())

    async def command(client: Redis) -> tuple[int, list[bytes]]:
        answer: tuple[int, list[bytes]] = await client.eval(
            _MOVE, 2 + len(names), _key(flush_id), _LIST, *names, flush_id
        )
        return answer

    moved, dropped = await _ask(redis, command)
    if dropped:
        _warn(dropped)
    return flush_id if moved else None


async def read(redis: RedisLink, flush_id: str) -> Counts:
    async def command(client: Redis) -> dict[bytes, bytes]:
        fields: dict[bytes, bytes] = await cast(Awaitable[Any], client.hgetall(_key(flush_id)))
        return fields

    counts = Counts()
    for name, value in (await _ask(redis, command)).items():
        kind, number = _of(name) or ("", 0)
        if kind and _VALUE.fullmatch(value) and int(value):
            (counts.views if kind == "views" else counts.reads)[number] = int(value)
    return counts


# PRIMARY, a point for each id, in its order.
_ADD_VIEWS = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', times BIGINT UNSIGNED PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = w.id
    SET s.view_count = s.view_count + w.times
"""
_ADD_READS = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', times BIGINT UNSIGNED PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (PRIMARY) ON c.id = w.id
    SET c.read_count = c.read_count + w.times
"""


async def add(conn: Connection, counts: Counts) -> None:
    """Add to stories and then chapters. What was counted of one that does not exist is gone."""
    if counts.views:
        await conn.execute(_ADD_VIEWS, (orjson.dumps(sorted(counts.views.items())).decode(),))
    if counts.reads:
        await conn.execute(_ADD_READS, (orjson.dumps(sorted(counts.reads.items())).decode(),))


async def forget(redis: RedisLink, flush_id: str) -> None:
    """Delete a flush that was written."""

    async def command(client: Redis) -> object:
        return await client.eval(_FORGET, 2, _key(flush_id), _LIST, flush_id)

    await _ask(redis, command)


async def _ask(redis: RedisLink, command: Callable[[Redis], Awaitable[T]]) -> T:
    async def away() -> T:
        raise RedisAway

    return await redis.run(USE, command, fallback=away)


def _key(flush_id: str) -> str:
    return f"novel:flush:{flush_id}"


def _of(name: bytes) -> tuple[str, int] | None:
    """What a counter counts, and of which id."""
    match = _COUNTER.fullmatch(name)
    if not match or not _ID.fullmatch(match[2]) or int(match[2]) > MAX_ID:
        return None
    return match[1].decode(), int(match[2])


def _warn(names: Sequence[bytes]) -> None:
    log.warning("view_counters.dropped", count=len(names), names=[repr(name[:80]) for name in names[:10]])
