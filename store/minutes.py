"""`wp_novel_ingest_minutes`: what the queue did in each minute, per job type and source, for whoever looks at it.

Workers add what they have done to the minute they are in. Once a minute, maintenance writes how many items the door
accepted in the minutes that are over, and how much waits now.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import orjson

from store.connection import Connection

MINUTE = timedelta(minutes=1)
# A request has the time at which it was begun and is seen once it is committed: look at a minute again until then.
LATE = 2 * MINUTE
# How far back the accepted items of minutes are counted in which nobody did: at first, and after an outage.
FIRST = timedelta(hours=1)
MOST = timedelta(days=1)
PAGE_ROWS = 1000

# PRIMARY, in its order, so that two workers meet in the same one.
_ADD = """
    INSERT INTO wp_novel_ingest_minutes (minute, job_type, source, completed, stale, retried, failed, dead)
    SELECT DATE_FORMAT(UTC_TIMESTAMP(), '%%Y-%%m-%%d %%H:%%i:00'), w.job_type, w.source, w.more_completed, w.more_stale,
        w.more_retried, w.more_failed, w.more_dead
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        job_type VARCHAR(40) PATH '$.job_type', source VARCHAR(40) PATH '$.source',
        more_completed INT UNSIGNED PATH '$.completed', more_stale INT UNSIGNED PATH '$.stale',
        more_retried INT UNSIGNED PATH '$.retried', more_failed INT UNSIGNED PATH '$.failed',
        more_dead INT UNSIGNED PATH '$.dead'
    )) w
    ON DUPLICATE KEY UPDATE completed = completed + VALUES(completed), stale = stale + VALUES(stale),
        retried = retried + VALUES(retried), failed = failed + VALUES(failed), dead = dead + VALUES(dead)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of items since the last time."""

    job_type: str
    source: str
    completed: int = 0
    stale: int = 0
    retried: int = 0
    failed: int = 0
    dead: int = 0


async def add(conn: Connection, rows: Sequence[Tally]) -> None:
    """Add to the current minute."""
    ordered = sorted(rows, key=lambda row: (row.job_type, row.source))
    if ordered:
        await conn.execute(_ADD, (orjson.dumps([asdict(row) for row in ordered]).decode(),))


# -- once a minute --------------------------------------------------------------------------------------

_NOW = "SELECT UTC_TIMESTAMP()"
# PRIMARY, from its end: ids are in the order of time.
_NEWEST_REQUESTS = """
    SELECT id, created_at, job_type, source, accepted_items
    FROM wp_novel_ingest_requests FORCE INDEX (PRIMARY) WHERE id < %s ORDER BY id DESC LIMIT %s
"""
# One narrow row per waiting unit: a scan of the whole table, once a minute.
_WAITING = """
    SELECT job_type, source, SUM(items),
        GREATEST(0, TIMESTAMPDIFF(SECOND, MIN(next_run_at), UTC_TIMESTAMP(6)))
    FROM wp_novel_ingest_ready GROUP BY job_type, source
"""
# PRIMARY. Set and not added, so that doing it twice is doing it once.
_SET_ACCEPTED = """
    INSERT INTO wp_novel_ingest_minutes (minute, job_type, source, accepted) VALUES (%s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE accepted = VALUES(accepted)
"""
# PRIMARY, a range: what was waiting at an earlier look in the same minute.
_CLEAR_WAITING = """
    UPDATE wp_novel_ingest_minutes FORCE INDEX (PRIMARY) SET waiting_items = 0, oldest_due_seconds = 0
    WHERE minute BETWEEN %s AND %s
"""
_SET_WAITING = """
    INSERT INTO wp_novel_ingest_minutes (minute, job_type, source, waiting_items, oldest_due_seconds)
    VALUES (%s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE waiting_items = VALUES(waiting_items), oldest_due_seconds = VALUES(oldest_due_seconds)
"""
_MOST_ID = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RollUp:
    rows: int
    """How many were written."""
    place: str
    """The minute that was current."""


async def roll_up(conn: Connection, place: str | None) -> RollUp:
    """Bring the minutes up to date since `place`, the last time this was done."""
    row = await conn.fetch_one(_NOW)
    assert row is not None
    current: datetime = row[0].replace(second=0)
    last = datetime.fromisoformat(place) if place else current - FIRST
    accepted = await _accepted(conn, max(last, current - MOST) - LATE, current)
    if accepted:
        await conn.execute_many(_SET_ACCEPTED, [(*key, items) for key, items in sorted(accepted.items())])
    # The last minute too, if nobody looked in it: this is done about, and not exactly, once a minute.
    looked_at = [current - MINUTE, current] if place and last < current - MINUTE else [current]
    await conn.execute(_CLEAR_WAITING, (looked_at[0], looked_at[-1]))
    waiting = await conn.fetch_all(_WAITING)
    samples = [
        (minute, job_type, source, int(items), int(seconds))
        for minute in looked_at
        for job_type, source, items, seconds in sorted(waiting)
    ]
    if samples:
        await conn.execute_many(_SET_WAITING, samples)
    return RollUp(len(accepted) + len(samples), current.isoformat(sep=" "))


async def _accepted(conn: Connection, since: datetime, until: datetime) -> Counter[tuple[datetime, str, str]]:
    """Items that the door accepted, by minute, job type and source, of requests begun in this time."""
    found: Counter[tuple[datetime, str, str]] = Counter()
    before = _MOST_ID
    while page := await conn.fetch_all(_NEWEST_REQUESTS, (before, PAGE_ROWS)):
        for before, created_at, job_type, source, items in page:  # noqa: B007  the last one's id is where to go on
            if since <= created_at < until:
                found[created_at.replace(second=0), job_type, source] += items
        # Ids are given a moment after the time is read, so the order is right only to a moment.
        if page[-1][1] < since - MINUTE:
            break
    return found


# -- reading --------------------------------------------------------------------------------------------

# PRIMARY, a range.
_LAST = """
    SELECT minute, job_type, source, accepted, completed, stale, retried, failed, dead, waiting_items,
        oldest_due_seconds
    FROM wp_novel_ingest_minutes FORCE INDEX (PRIMARY)
    WHERE minute > UTC_TIMESTAMP() - INTERVAL %s MINUTE ORDER BY minute, job_type, source
"""


@dataclass(frozen=True, slots=True)
class Minute:
    minute: datetime
    job_type: str
    source: str
    accepted: int
    completed: int
    stale: int
    retried: int
    failed: int
    dead: int
    waiting_items: int
    oldest_due_seconds: int


async def last(conn: Connection, *, minutes: int) -> list[Minute]:
    """What happened in this minute and those before it, the oldest first; minutes of silence have no row."""
    return [Minute(*row) for row in await conn.fetch_all(_LAST, (minutes,))]
