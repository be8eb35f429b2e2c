"""Flushes of view counters that are cut off, and what is left of them in Redis and in the tables."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import redis as plain_redis
from redis.asyncio import Redis

from schema.connection import Connection as PlainConnection
from store import upkeep, view_counters
from store.connection import Connection
from store.pool import Pool
from store.redis_link import RedisLink
from store.upkeep import Turn
from store.view_counters import Flushed

T = TypeVar("T")
STEPS = ("unfinished", "scan", "move", "read", "add", "forget")
_COUNTERS = "novel:[vrf]*"


class Killed(Exception):
    """Stands for the end of the process."""


class LossyLink:
    """A Redis that is lost at one of the commands: before it was heard (`is_done` false), or before it answered."""

    def __init__(self, link: RedisLink, lost: int, *, is_done: bool) -> None:
        self._link = link
        self._lost = lost
        self._is_done = is_done
        self.is_configured = True
        self.asked = 0

    async def run(
        self, use: str, command: Callable[[Redis], Awaitable[T]], *, fallback: Callable[[], Awaitable[T]]
    ) -> T:
        self.asked += 1
        if self.asked == self._lost and not self._is_done:
            return await fallback()
        answer = await self._link.run(use, command, fallback=fallback)
        return answer if self.asked != self._lost else await fallback()


def remove_counters(client: "plain_redis.Redis") -> None:
    for key in client.scan_iter(match=_COUNTERS):
        client.delete(key)


def left(client: "plain_redis.Redis") -> set[str]:
    return {key.decode(errors="replace") for key in client.scan_iter(match=_COUNTERS)}


async def take(pool: Pool, conn: PlainConnection) -> Turn:
    """The next turn, as if that of whoever died had ended by itself."""
    conn.execute("UPDATE wp_novel_upkeep SET held_until = UTC_TIMESTAMP(6), next_run_at = UTC_TIMESTAMP(6)")

    async def work(inside: Connection) -> Turn | None:
        return await upkeep.take(inside, "view_counters", holder="me", every_seconds=300, hold_seconds=120)

    turn = await pool.transaction(work)
    assert turn is not None
    return turn


async def flush(pool: Pool, link: Any, turn: Turn) -> Flushed:
    """A whole turn, as maintenance has it."""
    flushed = await view_counters.flush(pool, link, turn, may_go_on=lambda: True)

    async def finish(inside: Connection) -> None:
        await upkeep.finish(inside, turn, rows=flushed.counters, lag_seconds=0, place=flushed.place)

    await pool.transaction(finish)
    return flushed


def stored(conn: PlainConnection, story_ids: list[int]) -> list[tuple[int, int]]:
    """Views of each story, and reads of its chapter."""
    rows = conn.fetch_all(
        "SELECT s.id, s.view_count, c.read_count FROM wp_novel_stories s JOIN wp_novel_chapters c ON c.story_id = s.id"
    )
    found: dict[int, tuple[int, int]] = {story_id: (views, reads) for story_id, views, reads in rows}
    return [found[story_id] for story_id in story_ids]


def chapters_of(conn: PlainConnection, story_ids: list[int]) -> list[int]:
    found: dict[int, int] = dict(conn.fetch_all("SELECT story_id, id FROM wp_novel_chapters"))
    return [found[story_id] for story_id in story_ids]


def dying(patch: pytest.MonkeyPatch, step: str, *, after: bool, at: int = 1) -> None:
    """Let the process end before or after a step of a flush, the `at`th time that it gets there."""
    real, calls = getattr(view_counters, step), 0

    async def step_of_death(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != at:
            return await real(*arguments)
        if after:
            await real(*arguments)
        raise Killed

    patch.setattr(view_counters, step, step_of_death)


class CutPool:
    """A pool whose user dies, or hears nothing, once a transaction is committed."""

    def __init__(self, pool: Pool, error: Exception) -> None:
        self._pool = pool
        self._error = error

    async def transaction(self, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        await self._pool.transaction(work)
        raise self._error
