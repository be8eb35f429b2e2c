"""`wp_novel_story_recount_queue`: stories whose counts are to be computed again, each at most once.

Who changes chapters or ratings *touches* the story in the same transaction, last: the first touch is due after a
window, further ones only raise `touch_count`. A worker *claims* what is due in a short transaction, which notes the
worker and the time and moves `next_run_at` to the end of its lease; so the range that claims read has only rows they
may take. It then counts without any lock, and in one transaction *holds* those rows whose claim still stands, writes
the counts, and *clears* the rows whose `touch_count` is what it saw when it claimed. What was touched meanwhile stays.

A row is ours if it has the mark of our claim: the worker's name and, behind a slash, what tells this claim from all
others of that worker, also from one within the same second. `hold` leaves out rows that somebody touches just then, so
a recount never waits for a content transaction. A content transaction waits for no more than the recount's last
statements, or for a claim: MariaDB keeps an index entry locked though it skips its row.
"""

import math
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from store.connection import Connection, Row

# Somebody asked for it: before what the workers touch.
ASKED_FOR = 10
MAX_ATTEMPTS = 65535  # what the column holds

# PRIMARY. Sorted by story, so that two writers meet in the same order. What a worker holds or has failed at keeps its
# time; else the earlier counts.
_TOUCH = """
    INSERT INTO wp_novel_story_recount_queue
        (story_id, dirty_since, next_run_at, priority, touch_count, updated_at)
    VALUES (%s, UTC_TIMESTAMP(), UTC_TIMESTAMP() + INTERVAL %s SECOND, 0, 1, UTC_TIMESTAMP())
    ON DUPLICATE KEY UPDATE
        next_run_at = IF(locked_at IS NULL AND attempts = 0, LEAST(next_run_at, VALUES(next_run_at)), next_run_at),
        touch_count = touch_count + 1, updated_at = VALUES(updated_at)
"""
# PRIMARY, sorted in the same way.
_ASK = """
    INSERT INTO wp_novel_story_recount_queue
        (story_id, dirty_since, next_run_at, priority, touch_count, updated_at)
    VALUES (%s, UTC_TIMESTAMP(), UTC_TIMESTAMP(), %s, 1, UTC_TIMESTAMP())
    ON DUPLICATE KEY UPDATE next_run_at = LEAST(next_run_at, VALUES(next_run_at)),
        priority = GREATEST(priority, VALUES(priority)), touch_count = touch_count + 1, updated_at = VALUES(updated_at)
"""
# PRIMARY. For counts that were computed beside the queue.
_TOUCH_CLAIMED = """
    UPDATE wp_novel_story_recount_queue SET touch_count = touch_count + 1, updated_at = UTC_TIMESTAMP()
    WHERE story_id = %s AND locked_at IS NOT NULL
"""
# One entry each of KEY by_locked_at and of KEY due. MAX(priority) would read all of a descending index.
_LOOK = """
    SELECT UTC_TIMESTAMP(), (SELECT MIN(locked_at) FROM wp_novel_story_recount_queue),
        (SELECT priority FROM wp_novel_story_recount_queue FORCE INDEX (due) ORDER BY priority DESC LIMIT 1)
"""
# KEY by_locked_at, forced: only claims whose lease has run out.
_EXPIRED = """
    SELECT story_id FROM wp_novel_story_recount_queue FORCE INDEX (by_locked_at)
    WHERE locked_at < %s ORDER BY locked_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
# KEY due, forced: the optimizer would sort, or read what is not due.
_DUE = """
    SELECT story_id, touch_count, attempts FROM wp_novel_story_recount_queue FORCE INDEX (due)
    WHERE priority = %s AND next_run_at <= %s AND locked_at IS NULL
    ORDER BY next_run_at, story_id LIMIT %s FOR UPDATE SKIP LOCKED
"""
# KEY due, one entry: all of a priority are skipped at once, due or not.
_NEXT_PRIORITY = """
    SELECT priority FROM wp_novel_story_recount_queue FORCE INDEX (due)
    WHERE priority < %s ORDER BY priority DESC LIMIT 1
"""
# PRIMARY, as all that follow: a point for each id.
_CLAIM = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_story_recount_queue q FORCE INDEX (PRIMARY) ON q.story_id = wanted.id
    SET q.locked_at = %s, q.locked_by = %s, q.next_run_at = %s, q.updated_at = UTC_TIMESTAMP()
"""
_FREE = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_story_recount_queue q FORCE INDEX (PRIMARY) ON q.story_id = wanted.id
    SET q.next_run_at = IF(q.next_run_at <= UTC_TIMESTAMP(), q.next_run_at, UTC_TIMESTAMP() + INTERVAL %s SECOND),
        q.locked_at = NULL, q.locked_by = NULL, q.updated_at = UTC_TIMESTAMP()
"""
# What was counted as of its claim is dirty since then.
_FREE_COUNTED = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', locked_at DATETIME PATH '$[1]')) wanted
    STRAIGHT_JOIN wp_novel_story_recount_queue q FORCE INDEX (PRIMARY) ON q.story_id = wanted.id
    SET q.next_run_at = IF(q.next_run_at <= UTC_TIMESTAMP(), q.next_run_at, UTC_TIMESTAMP() + INTERVAL %s SECOND),
        q.dirty_since = wanted.locked_at, q.attempts = 0,
        q.locked_at = NULL, q.locked_by = NULL, q.updated_at = UTC_TIMESTAMP()
"""
_FREE_EXPIRED = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_story_recount_queue q FORCE INDEX (PRIMARY) ON q.story_id = wanted.id
    SET q.next_run_at = LEAST(q.next_run_at, %s), q.locked_at = NULL, q.locked_by = NULL,
        q.updated_at = UTC_TIMESTAMP()
"""
_POSTPONE = """
    UPDATE wp_novel_story_recount_queue
    SET next_run_at = UTC_TIMESTAMP() + INTERVAL %s SECOND, attempts = %s,
        locked_at = NULL, locked_by = NULL, updated_at = UTC_TIMESTAMP()
    WHERE story_id = %s
"""
_DELETE = """
    DELETE q FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_story_recount_queue q FORCE INDEX (PRIMARY) ON q.story_id = wanted.id
"""
_HOLD = """
    SELECT q.story_id, q.touch_count
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', locked_by VARCHAR(64) PATH '$[1]')) wanted
    STRAIGHT_JOIN wp_novel_story_recount_queue q FORCE INDEX (PRIMARY)
        ON q.story_id = wanted.id AND q.locked_by = wanted.locked_by
    FOR UPDATE SKIP LOCKED
"""
_OURS = """
    SELECT q.story_id
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', locked_by VARCHAR(64) PATH '$[1]')) wanted
    STRAIGHT_JOIN wp_novel_story_recount_queue q FORCE INDEX (PRIMARY)
        ON q.story_id = wanted.id AND q.locked_by = wanted.locked_by
"""
# KEY by_locked_at, forced: what is claimed by anybody.
_CLAIMED_BY = """
    SELECT story_id, touch_count, attempts, locked_by, locked_at
    FROM wp_novel_story_recount_queue FORCE INDEX (by_locked_at)
    WHERE locked_at IS NOT NULL AND SUBSTRING_INDEX(locked_by, '/', 1) = %s
"""


@dataclass(frozen=True, slots=True)
class Dirty:
    """A story that a worker has claimed, as it was then."""

    story_id: int
    touch_count: int
    attempts: int
    locked_by: str
    """The mark of the claim: no other has the same."""
    locked_at: datetime


async def touch(conn: Connection, story_ids: Collection[int], *, window_seconds: float) -> None:
    """Have these stories recounted once the window has passed: the last statement about content of a transaction."""
    seconds = math.ceil(window_seconds)
    await conn.execute_many(_TOUCH, [(story_id, seconds) for story_id in sorted(set(story_ids))])


async def ask(conn: Connection, story_ids: Collection[int]) -> None:
    """Have these stories recounted as soon as possible."""
    await conn.execute_many(_ASK, [(story_id, ASKED_FOR) for story_id in sorted(set(story_ids))])


async def outdate(conn: Connection, story_id: int) -> None:
    """Let a recount that is under way count this story once more: what it has read may be too old."""
    await conn.execute(_TOUCH_CLAIMED, (story_id,))


async def claim(conn: Connection, *, worker: str, limit: int, lease_seconds: float) -> list[Dirty]:
    """Take up to `limit` stories that are due: by priority, then by time."""
    mark = f"{worker}/{secrets.token_hex(8)}"
    look = await conn.fetch_one(_LOOK)
    assert look is not None
    now, oldest_claim, priority = look
    lease = timedelta(seconds=math.ceil(lease_seconds))
    if oldest_claim is not None and oldest_claim < now - lease:
        expired = await conn.fetch_all(_EXPIRED, (now - lease, limit))
        await conn.execute(_FREE_EXPIRED, (_json(sorted(row[0] for row in expired)), now))
    found: list[Row] = []
    while priority is not None:
        found += await conn.fetch_all(_DUE, (priority, now, limit - len(found)))
        if len(found) >= limit or priority == 0:
            break
        lower = await conn.fetch_one(_NEXT_PRIORITY, (priority,))
        priority = lower[0] if lower else None
    if found:
        await conn.execute(_CLAIM, (_json(sorted(row[0] for row in found)), now, mark, now + lease))
    return [Dirty(story_id, touches, attempts, mark, now) for story_id, touches, attempts in found]


async def hold(conn: Connection, claimed: Sequence[Dirty]) -> dict[int, int]:
    """Lock until COMMIT those rows that are still ours and that nobody touches just now: their present touch counts."""
    if not claimed:
        return {}
    rows = await conn.fetch_all(_HOLD, (_marks(claimed),))
    return {int(story_id): int(touches) for story_id, touches in rows}


async def still_ours(conn: Connection, claimed: Sequence[Dirty]) -> set[int]:
    """Which of these rows nobody has taken over or cleared, also if somebody touches them just now."""
    if not claimed:
        return set()
    return {int(row[0]) for row in await conn.fetch_all(_OURS, (_marks(claimed),))}


async def clear(conn: Connection, counted: Sequence[Dirty], held: dict[int, int], *, window_seconds: float) -> None:
    """End the claim of rows that `hold` gave and whose counts are written.

    Only the touch count that we saw is cleared: touches that arrived since must survive, and are due after the window.
    """
    cleared = sorted(dirty.story_id for dirty in counted if held[dirty.story_id] == dirty.touch_count)
    touched = [dirty for dirty in counted if held[dirty.story_id] != dirty.touch_count]
    if cleared:
        await conn.execute(_DELETE, (_json(cleared),))
    if touched:
        await conn.execute(_FREE_COUNTED, (_with_times(touched), math.ceil(window_seconds)))


async def free(conn: Connection, story_ids: Collection[int], *, wait_seconds: float = 0) -> None:
    """End the claim of rows that `hold` gave without having counted them; they are due after the wait."""
    if story_ids:
        await conn.execute(_FREE, (_json(sorted(story_ids)), math.ceil(wait_seconds)))


async def postpone(conn: Connection, dirty: Dirty, *, wait_seconds: float) -> None:
    """End the claim of a row that `hold` gave because its recount failed; it is due again after the wait."""
    attempts = min(dirty.attempts + 1, MAX_ATTEMPTS)
    await conn.execute(_POSTPONE, (math.ceil(wait_seconds), attempts, dirty.story_id))


async def give_back(conn: Connection, *, worker: str) -> int:
    """Free what a worker that stops still has claimed; returns how many rows that were."""
    rows = await conn.fetch_all(_CLAIMED_BY, (worker,))
    held = await hold(conn, [Dirty(*row) for row in rows])
    await free(conn, held)
    return len(held)


def _marks(claimed: Sequence[Dirty]) -> str:
    return _json(sorted((dirty.story_id, dirty.locked_by) for dirty in claimed))


def _with_times(claimed: Sequence[Dirty]) -> str:
    return _json(sorted((dirty.story_id, dirty.locked_at.isoformat(sep=" ")) for dirty in claimed))


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
