"""Brings back what dead workers held.

A unit whose worker died goes back to the queue with one crash more. It may itself be what kills workers, so from its
second crash on it comes back in halves, until the one item that does it is alone; an item over which `max_crashes`
workers died is a dead letter. Its neighbours lose nothing by it, and no attempt.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from store import jobs, units
from store.connection import Connection
from store.jobs import DEAD, Job, Verdict
from store.units import Unit, Waiting

CRASHED = "worker_crashed"

# PRIMARY. Locked: a worker that beats at this moment either is first, or finds that it was taken for dead. Passed over
# if another has it: it beats, or somebody rescues it already; for a rescuer that is itself stopped nobody has to wait.
_LOCK_SILENT = """
    SELECT id FROM wp_novel_workers
    WHERE id = %s AND heartbeat_at < UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND FOR UPDATE SKIP LOCKED
"""
_DELETE_WORKER = "DELETE FROM wp_novel_workers WHERE id = %s"
# A lease row for each unit under way; KEY by_worker, PRIMARY of workers.
_ORPHANS = """
    SELECT DISTINCT l.worker_id FROM wp_novel_ingest_leases l
    LEFT JOIN wp_novel_workers w ON w.id = l.worker_id WHERE w.id IS NULL ORDER BY l.worker_id
"""
# KEY by_blob_item.
_OPEN_JOBS = """
    SELECT id, item_index, payload_size_bytes FROM wp_novel_ingest_jobs FORCE INDEX (by_blob_item)
    WHERE payload_blob_id = %s AND item_index BETWEEN %s AND %s AND status = 0 ORDER BY item_index
"""


@dataclass(frozen=True, slots=True)
class Rescued:
    units: int = 0
    dead: int = 0
    """Items that became dead letters."""


async def rescue(
    conn: Connection, worker_id: int, *, silent_seconds: float, max_crashes: int, payload_minutes: int
) -> Rescued | None:
    """Take everything from a worker that has been silent so long (0: that is known to be gone); None if it is not."""
    if not await conn.fetch_one(_LOCK_SILENT, (worker_id, round(silent_seconds * 1e6))):
        return None
    await conn.execute(_DELETE_WORKER, (worker_id,))
    return await bring_back(conn, worker_id, max_crashes=max_crashes, payload_minutes=payload_minutes)


async def orphans(conn: Connection) -> list[int]:
    """Workers that hold something but are not there any more."""
    return [worker_id for (worker_id,) in await conn.fetch_all(_ORPHANS)]


async def bring_back(
    conn: Connection, worker_id: int, *, max_crashes: int, payload_minutes: int, only: Collection[int] | None = None
) -> Rescued:
    """Queue again what a worker holds, or only some units of it, as after a crash."""
    held = [unit for unit in await units.held(conn, worker_id=worker_id) if only is None or unit.id in only]
    if not held:
        return Rescued()
    await units.end_leases(conn, held, worker_id=worker_id)
    parts: list[Waiting] = []
    verdicts: list[Verdict] = []
    for unit in held:
        open_jobs = [
            Job(job_id, unit, index, size, None)
            for job_id, index, size in await conn.fetch_all(_OPEN_JOBS, (unit.blob_id, unit.first, unit.last))
        ]
        if len(open_jobs) == 1 and unit.crashes + 1 >= max_crashes:
            verdicts.append(_dead(open_jobs[0]))
        else:
            parts += pieces(unit, open_jobs)
    await units.add_waiting(conn, parts)
    if verdicts:
        await jobs.write(conn, verdicts, payload_minutes=payload_minutes)
    return Rescued(len(held), len(verdicts))


def pieces(unit: Unit, open_jobs: Sequence[Job]) -> list[Waiting]:
    """A crashed unit as it goes back: whole the first time, in halves after that."""
    if not open_jobs:
        return []
    if unit.crashes == 0 or len(open_jobs) == 1:
        return [_part(unit, open_jobs, crashes=unit.crashes + 1)]
    middle = len(open_jobs) // 2
    # Each half has crashed once, so that the guilty one is halved again.
    return [_part(unit, half, crashes=1) for half in (open_jobs[:middle], open_jobs[middle:])]


def _part(unit: Unit, open_jobs: Sequence[Job], *, crashes: int) -> Waiting:
    return Waiting(
        of=unit,
        first=open_jobs[0].index,
        last=open_jobs[-1].index,
        items=len(open_jobs),
        payload_bytes=sum(job.payload_bytes for job in open_jobs),
        attempts=unit.attempts,
        crashes=crashes,
        delay_seconds=0.0,
    )


def _dead(job: Job) -> Verdict:
    crashes = job.unit.crashes + 1
    return Verdict(
        job=job,
        status=DEAD,
        attempts=job.unit.attempts,
        crashes=crashes,
        code=CRASHED,
        message=f"{crashes} workers died while they worked on this item.",
    )
