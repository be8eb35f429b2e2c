"""How the queue stands: what waits, what is being processed, what failed, and who works on it.

Every figure costs as much as what is there to do, never as much as what was done: the tables of waiting and leased
units, of workers and of upkeep are small, and ended jobs are counted from the newest back to a limit. The depths are
read by commands and by workers alike, so a synchronous and an asynchronous function share their statement and row.
"""

from dataclasses import dataclass
from datetime import datetime

from schema.connection import Connection, Row
from store.connection import Connection as AsyncConnection
from store.ingest_jobs import STATUSES

# Of each status, so that millions of failures are counted as fast as thousands.
MAX_COUNTED = 10_000

# One narrow row per waiting unit: a scan of the whole table, grouped. Each item is counted as due, as waiting for a
# story, or as waiting for a retry, and so just once.
_DEPTHS = """
    SELECT job_type, source, COUNT(*), COALESCE(SUM(items), 0),
        COALESCE(SUM(IF(next_run_at <= UTC_TIMESTAMP(6), 1, 0)), 0),
        COALESCE(SUM(IF(next_run_at <= UTC_TIMESTAMP(6), items, 0)), 0),
        COALESCE(SUM(IF(next_run_at > UTC_TIMESTAMP(6) AND waiting_for IS NOT NULL, items, 0)), 0),
        COALESCE(SUM(IF(next_run_at > UTC_TIMESTAMP(6) AND waiting_for IS NULL, items, 0)), 0),
        TIMESTAMPDIFF(MICROSECOND, MIN(next_run_at), UTC_TIMESTAMP(6))
    FROM wp_novel_ingest_ready
    GROUP BY job_type, source ORDER BY job_type, source
"""
# One row per unit under way: a scan of the whole table, grouped.
_LEASES = """
    SELECT job_type, source, COUNT(*), COALESCE(SUM(items), 0),
        TIMESTAMPDIFF(MICROSECOND, MIN(claimed_at), UTC_TIMESTAMP(6))
    FROM wp_novel_ingest_leases
    GROUP BY job_type, source ORDER BY job_type, source
"""
# KEY due, backwards from the newest and by force: the statistics of a large history mislead.
_ENDED = """
    SELECT job_type, error_code, COUNT(*), TIMESTAMPDIFF(SECOND, MAX(next_run_at), UTC_TIMESTAMP())
    FROM (
        SELECT job_type, error_code, next_run_at FROM wp_novel_ingest_jobs FORCE INDEX (due)
        WHERE status = %s ORDER BY next_run_at DESC, id DESC LIMIT %s
    ) newest
    GROUP BY job_type, error_code ORDER BY COUNT(*) DESC, job_type, error_code
"""
# A row per process, and its leases by their grouped table.
_WORKERS = """
    SELECT w.id, w.kind, w.host, w.pid, TIMESTAMPDIFF(MICROSECOND, w.started_at, UTC_TIMESTAMP(6)),
        TIMESTAMPDIFF(MICROSECOND, w.heartbeat_at, UTC_TIMESTAMP(6)), COALESCE(held.units, 0), COALESCE(held.items, 0)
    FROM wp_novel_workers w LEFT JOIN (
        SELECT worker_id, COUNT(*) units, SUM(items) items FROM wp_novel_ingest_leases GROUP BY worker_id
    ) held ON held.worker_id = w.id
    ORDER BY w.kind, w.host, w.id
"""
# A row per unit under way; PRIMARY of the workers.
_ABANDONED = """
    SELECT COUNT(*), COALESCE(SUM(l.items), 0)
    FROM wp_novel_ingest_leases l LEFT JOIN wp_novel_workers w ON w.id = l.worker_id
    WHERE w.id IS NULL
"""
# At most one narrow row per story that changed: a scan of the whole table.
_RECOUNTS = """
    SELECT COUNT(*), COALESCE(SUM(locked_at IS NULL AND next_run_at <= UTC_TIMESTAMP()), 0),
        TIMESTAMPDIFF(SECOND, MIN(IF(locked_at IS NULL AND next_run_at <= UTC_TIMESTAMP(), next_run_at, NULL)),
            UTC_TIMESTAMP()),
        COALESCE(SUM(locked_at IS NOT NULL), 0), TIMESTAMPDIFF(SECOND, MIN(locked_at), UTC_TIMESTAMP()),
        COALESCE(SUM(attempts > 0), 0)
    FROM wp_novel_story_recount_queue
"""
# A row per task.
_UPKEEP = """
    SELECT task, IF(held_until > UTC_TIMESTAMP(6), holder, NULL), finished_at,
        TIMESTAMPDIFF(MICROSECOND, finished_at, UTC_TIMESTAMP(6)), seconds, changed_rows, lag_seconds,
        TIMESTAMPDIFF(MICROSECOND, next_run_at, UTC_TIMESTAMP(6))
    FROM wp_novel_upkeep ORDER BY task
"""
_NOW = "SELECT UTC_TIMESTAMP()"


@dataclass(frozen=True, slots=True)
class Depth:
    """What waits of one job type and source. Items that are not due wait for a story, or for a retry."""

    job_type: str
    source: str
    units: int
    items: int
    due_units: int
    due_items: int
    waiting_for_story_items: int
    waiting_for_retry_items: int
    oldest_due_seconds: float | None
    """None: nothing is due."""


@dataclass(frozen=True, slots=True)
class Processing:
    """What workers hold of one job type and source."""

    job_type: str
    source: str
    units: int
    items: int
    oldest_claim_seconds: float


@dataclass(frozen=True, slots=True)
class Failures:
    """Jobs that ended in one way, of one job type and with one error code."""

    job_type: str
    status: str
    error_code: str | None
    items: int
    newest_seconds: float


@dataclass(frozen=True, slots=True)
class Worker:
    id: int
    kind: str
    host: str
    pid: int
    started_seconds: float
    heartbeat_seconds: float
    units: int
    items: int

    def is_late(self, lease_seconds: float) -> bool:
        """Silent for half the time after which others take over what it holds: it should have spoken long before."""
        return self.heartbeat_seconds > lease_seconds / 2


@dataclass(frozen=True, slots=True)
class Abandoned:
    """What is held by workers that are not there any more."""

    units: int
    items: int


@dataclass(frozen=True, slots=True)
class Recounts:
    stories: int
    due: int
    oldest_due_seconds: float | None
    locked: int
    oldest_lock_seconds: float | None
    retrying: int


@dataclass(frozen=True, slots=True)
class Task:
    """A task of maintenance."""

    task: str
    holder: str | None
    """Who is at it now."""
    finished_at: datetime | None
    finished_seconds: float | None
    took_seconds: float
    changed_rows: int
    lag_seconds: float
    """How far behind it was when it last ended: how old what it should have done was."""
    overdue_seconds: float
    """Since when it should have begun; 0 while it need not, or somebody is at it."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    taken_at: datetime
    waiting: tuple[Depth, ...]
    processing: tuple[Processing, ...]
    failures: tuple[Failures, ...]
    workers: tuple[Worker, ...]
    abandoned: Abandoned
    recounts: Recounts
    maintenance: tuple[Task, ...]

    def ended(self, status: str) -> int:
        """How many jobs ended so; MAX_COUNTED stands for that many or more."""
        return sum(group.items for group in self.failures if group.status == status)

    def is_capped(self, status: str) -> bool:
        return self.ended(status) >= MAX_COUNTED


def read(conn: Connection) -> QueueStatus:
    """How everything stands now."""
    (taken_at,) = conn.fetch_all(_NOW)[0]
    return QueueStatus(
        taken_at=taken_at,
        waiting=tuple(depths(conn)),
        processing=tuple(
            Processing(job_type, source, units, int(items), _seconds(age))
            for job_type, source, units, items, age in conn.fetch_all(_LEASES)
        ),
        failures=tuple(
            Failures(job_type, status, error_code, items, max(0.0, float(age)))
            for status in ("dead_letter", "failed")
            for job_type, error_code, items, age in conn.fetch_all(_ENDED, (STATUSES.index(status), MAX_COUNTED))
        ),
        workers=tuple(
            Worker(number, kind, host, pid, _seconds(started), _seconds(heartbeat), int(units), int(items))
            for number, kind, host, pid, started, heartbeat, units, items in conn.fetch_all(_WORKERS)
        ),
        abandoned=Abandoned(*map(int, conn.fetch_all(_ABANDONED)[0])),
        recounts=_recounts(conn.fetch_all(_RECOUNTS)[0]),
        maintenance=tuple(map(_task, conn.fetch_all(_UPKEEP))),
    )


def depths(conn: Connection) -> list[Depth]:
    """What waits, by job type and source."""
    return [_depth(row) for row in conn.fetch_all(_DEPTHS)]


async def depths_async(conn: AsyncConnection) -> list[Depth]:
    """The same, for metrics."""
    return [_depth(row) for row in await conn.fetch_all(_DEPTHS)]


async def recounts_async(conn: AsyncConnection) -> Recounts:
    row = await conn.fetch_one(_RECOUNTS)
    assert row is not None
    return _recounts(row)


async def tasks_async(conn: AsyncConnection) -> list[Task]:
    return [_task(row) for row in await conn.fetch_all(_UPKEEP)]


def _depth(row: Row) -> Depth:
    job_type, source, *counts, age = row
    units, items, due_units, due_items, for_story, for_retry = map(int, counts)
    oldest = _seconds(age) if due_units else None
    return Depth(job_type, source, units, items, due_units, due_items, for_story, for_retry, oldest)


def _recounts(row: Row) -> Recounts:
    stories, due, oldest_due, locked, oldest_lock, retrying = row
    return Recounts(
        stories=int(stories),
        due=int(due),
        oldest_due_seconds=None if oldest_due is None else float(oldest_due),
        locked=int(locked),
        oldest_lock_seconds=None if oldest_lock is None else float(oldest_lock),
        retrying=int(retrying),
    )


def _task(row: Row) -> Task:
    task, holder, finished_at, finished, took, changed_rows, lag, since_due = row
    return Task(
        task=task,
        holder=holder.rpartition("/")[0] or holder if holder else None,  # without the mark of its turn
        finished_at=finished_at,
        finished_seconds=None if finished is None else _seconds(finished),
        took_seconds=float(took),
        changed_rows=int(changed_rows),
        lag_seconds=float(lag),
        overdue_seconds=0.0 if holder else _seconds(since_due),
    )


def _seconds(microseconds: int) -> float:
    """An age; a moment ahead of us, as another transaction's may be, is now."""
    return max(0, microseconds) / 1_000_000
