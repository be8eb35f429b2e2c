"""Replays: an operator has dead letters queued again, and each run is one row of the journal.

What matches is found first, by reads that lock nothing, and then taken in pieces. A piece is one transaction: it locks
the jobs that are still dead (skipping what somebody else has locked), keeps their payloads from being purged, queues
jobs and units, takes the failures out of the counts of their requests, and brings the run's row in the journal up to
date. So a run can end at any moment, two of them share the work, and no job is queued twice. Only what had died when
the run began is taken: what dies again meanwhile is for another run.

Queueing again never brings back older content: a worker compares `updated_at_source` with what is stored, as always.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from schema import journal
from schema.connection import Connection, ServerError
from store import errors, ingest_jobs, ingest_requests, retry
from store.dead_letters import Found, Wanted
from store.ingest_jobs import PAYLOAD_DAYS

EVENT: Final = "replay.dead_letter"
PIECE_JOBS = 300

_QUEUED: Final = ingest_jobs.STATUSES.index("queued")
_PROCESSING: Final = ingest_requests.STATUSES.index("processing")


@dataclass(frozen=True, slots=True)
class Job:
    id: int
    request_id: str
    blob_id: int
    """0: it has none."""
    index: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Jobs of one request and blob, between the first and last of which no other job lies."""

    first_job_id: int
    last_item: int
    items: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an operator, and what it has done so far."""

    wanted: Wanted
    operator: str
    matched: int
    log_id: int = 0
    queued: int = 0
    units: int = 0
    payload_gone: int = 0
    taken: int = 0
    """Somebody else has queued, purged or locked these meanwhile."""

    @property
    def left(self) -> int:
        """How many were not reached: none, unless the run was stopped."""
        return self.matched - self.queued - self.payload_gone - self.taken


# -- a run ----------------------------------------------------------------------------------------------

_LOG_ID = "SELECT LAST_INSERT_ID()"


def begin(conn: Connection, wanted: Wanted, found: Found, *, operator: str) -> Run:
    """Note in the journal that a run begins; each piece brings that row up to date."""
    lost = found.lost_groups.total()
    run = Run(wanted, operator, matched=len(found.job_ids) + lost, payload_gone=lost)
    with conn.transaction():
        conn.execute(journal.APPEND, _entry(run, state="under way"))
        (log_id,) = conn.fetch_all(_LOG_ID)[0]
    return replace(run, log_id=log_id)


def queue(conn: Connection, run: Run, job_ids: Sequence[int], *, wait: Callable[[float], object]) -> Run:
    """Queue a piece again in one transaction, which is repeated where that can help; `wait` sleeps until then."""
    attempt = 0
    while True:
        attempt += 1
        try:
            with conn.transaction():
                return _queue(conn, run, job_ids)
        except ServerError as error:
            if errors.number(error) not in errors.RETRYABLE or attempt >= retry.MAX_ATTEMPTS:
                raise
        wait(retry.delay_seconds(attempt, random.random()))  # noqa: S311


# PRIMARY of wp_novel_sync_logs.
_NOTE = "UPDATE wp_novel_sync_logs SET message = %s, context_json = %s WHERE id = %s"


def end(conn: Connection, run: Run, *, stopped: bool) -> None:
    """Note that the run is over, or was stopped before its end."""
    _note(conn, run, state="stopped" if stopped else "finished")


def _note(conn: Connection, run: Run, *, state: str) -> None:
    *_, message, context = _entry(run, state=state)
    conn.execute(_NOTE, (message, context, run.log_id))


def _entry(run: Run, *, state: str) -> tuple[Any, ...]:
    wanted = run.wanted
    return journal.entry(
        EVENT,
        f"{run.queued} of {run.matched} dead letters were queued again by {run.operator} ({state}).",
        source=wanted.source,
        reference=wanted.request_id,
        context={
            "operator": run.operator,
            "state": state,
            "filters": wanted.filters,
            "matched": run.matched,
            "queued": run.queued,
            "units": run.units,
            "payload_gone": run.payload_gone,
            "taken": run.taken,
        },
    )


# -- a piece: one transaction ---------------------------------------------------------------------------

# PRIMARY, a point for each id: a lock on KEY due could meet a worker who comes by PRIMARY.
_LOCK = """
    SELECT j.id, j.request_id, j.payload_blob_id, j.item_index, j.payload_size_bytes
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (PRIMARY) ON j.id = w.id
    WHERE j.status IN (%s, %s) AND (%s IS NULL OR j.error_code = %s) AND j.next_run_at <= %s
    FOR UPDATE SKIP LOCKED
"""
# PRIMARY, a point for one job of each request, and UNIQUE request_id.
_LOCK_REQUESTS = """
    SELECT r.request_id, r.id
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (job_id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (PRIMARY) ON j.id = w.job_id
    STRAIGHT_JOIN wp_novel_ingest_requests r FORCE INDEX (request_id) ON r.request_id = j.request_id
    FOR UPDATE
"""
# PRIMARY, a point for each id. This locks them too: what a purge takes is gone before, what is there stays.
_KEEP_PAYLOADS = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_payload_blobs b FORCE INDEX (PRIMARY) ON b.id = w.id
    SET b.expires_at = GREATEST(b.expires_at, UTC_TIMESTAMP() + INTERVAL %s DAY)
"""
# PRIMARY, a point for each id.
_PAYLOADS = """
    SELECT b.id
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_payload_blobs b FORCE INDEX (PRIMARY) ON b.id = w.id
"""
# KEY by_blob_item, which has all of it; the items of a blob are few hundred at most.
_ITEMS_OF_BLOBS = """
    SELECT j.payload_blob_id, j.item_index
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (by_blob_item) ON j.payload_blob_id = w.id
"""
# PRIMARY, a point for each id. What went wrong stays to be read until it went otherwise.
_QUEUE_JOBS = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (PRIMARY) ON j.id = w.id
    SET j.status = %s, j.attempts = 0, j.crashes = 0, j.is_stale = 0, j.locked_at = NULL, j.locked_by = NULL,
        j.next_run_at = UTC_TIMESTAMP(), j.updated_at = UTC_TIMESTAMP()
"""
# PRIMARY, a point for each unit's first job.
_QUEUE_UNITS = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, next_run_at,
         created_at)
    SELECT j.job_type, j.source, j.request_id, j.payload_blob_id, j.item_index, w.last_item, w.items, w.payload_bytes,
        UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        job_id BIGINT UNSIGNED PATH '$[0]', last_item INT PATH '$[1]', items INT PATH '$[2]',
        payload_bytes BIGINT PATH '$[3]'
    )) w STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (PRIMARY) ON j.id = w.job_id
"""
# PRIMARY, a point for each id.
_UNCOUNT_FAILURES = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', items INT UNSIGNED PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_ingest_requests r FORCE INDEX (PRIMARY) ON r.id = w.id
    SET r.failed_items = r.failed_items - LEAST(r.failed_items, w.items), r.status = %s, r.updated_at = UTC_TIMESTAMP()
"""


def _queue(conn: Connection, run: Run, job_ids: Sequence[int]) -> Run:
    # Jobs, requests, payloads, as a worker that ends jobs locks them, so that neither waits for the other in a circle.
    locked = _lock(conn, run.wanted, job_ids)
    requests = _lock_requests(conn, locked)
    payloads = _keep_payloads(conn, {job.blob_id for job in locked})
    jobs = [job for job in locked if job.blob_id in payloads]
    found = units(jobs, _items_of_blobs(conn, jobs))
    if jobs:
        conn.execute(_QUEUE_JOBS, (_json([job.id for job in jobs]), _QUEUED))
        rows = [(unit.first_job_id, unit.last_item, unit.items, unit.payload_bytes) for unit in found]
        conn.execute(_QUEUE_UNITS, (_json(rows),))
        failures = Counter(requests[job.request_id] for job in jobs if job.request_id in requests)
        conn.execute(_UNCOUNT_FAILURES, (_json(sorted(failures.items())), _PROCESSING))
    run = replace(
        run,
        queued=run.queued + len(jobs),
        units=run.units + len(found),
        payload_gone=run.payload_gone + len(locked) - len(jobs),
        taken=run.taken + len(job_ids) - len(locked),
    )
    _note(conn, run, state="under way")
    return run


def _lock(conn: Connection, wanted: Wanted, job_ids: Sequence[int]) -> list[Job]:
    """Those that still match, in the order of their batches, out of reach for others until the transaction ends."""
    code = wanted.error_code
    statuses = (wanted.statuses[0], wanted.statuses[-1])
    rows = conn.fetch_all(_LOCK, (_json(job_ids), *statuses, code, code, wanted.until))
    jobs = [Job(job_id, request_id, blob_id or 0, index, size) for job_id, request_id, blob_id, index, size in rows]
    return sorted(jobs, key=lambda job: (job.request_id, job.blob_id, job.index))


def _lock_requests(conn: Connection, jobs: Sequence[Job]) -> dict[str, int]:
    """The requests of these jobs that are not purged, by their ids and in that order."""
    a_job = {job.request_id: job.id for job in jobs}
    return dict(conn.fetch_all(_LOCK_REQUESTS, (_json([a_job[request_id] for request_id in sorted(a_job)]),)))


def _keep_payloads(conn: Connection, blob_ids: set[int]) -> set[int]:
    """Which of these are there, and stay."""
    wanted = _json(sorted(blob_ids))
    conn.execute(_KEEP_PAYLOADS, (wanted, PAYLOAD_DAYS))
    return {blob_id for (blob_id,) in conn.fetch_all(_PAYLOADS, (wanted,))}


def _items_of_blobs(conn: Connection, jobs: Sequence[Job]) -> set[tuple[int, int]]:
    """Blob and index of every job that could lie between two of these."""
    together = sorted(blob_id for blob_id, count in Counter(job.blob_id for job in jobs).items() if count > 1)
    return set(conn.fetch_all(_ITEMS_OF_BLOBS, (_json(together),))) if together else set()


def units(jobs: Sequence[Job], items: Set[tuple[int, int]]) -> list[Unit]:
    """Jobs, in the order of their batches, as units; `items` has blob and index of whatever could lie between them.

    An item that the door refused has no job and lies between nothing.
    """
    places = {item: place for place, item in enumerate(sorted(items))}
    runs: list[list[Job]] = []
    for job in jobs:
        before = runs[-1][-1] if runs else None
        if (
            before
            and (before.request_id, before.blob_id) == (job.request_id, job.blob_id)
            and places[job.blob_id, job.index] == places[before.blob_id, before.index] + 1
        ):
            runs[-1].append(job)
        else:
            runs.append([job])
    return [Unit(run[0].id, run[-1].index, len(run), sum(job.size_bytes for job in run)) for run in runs]


def _json(values: Sequence[object]) -> str:
    return orjson.dumps(list(values)).decode()
