"""Units of the queue: what waits (`wp_novel_ingest_ready`) and what a worker holds (`wp_novel_ingest_leases`).

A unit is a run of jobs of one blob, most often all of them: one row, however many items. Its life:

1. `claim` moves it from ready to leases, in one short transaction, under the worker's id.
2. The worker reads its jobs and their payloads (`jobs.load`), and applies them.
3. One transaction has the effects, the jobs' new states and the end of the lease. `end_leases` is its first statement
   and its fence: a worker that was stopped, whose unit went to another, finds no lease of its own and changes nothing.

Jobs are not touched by a claim: a job is being processed while its unit is leased. Items that have to wait become units
of their own. What a dead worker held goes back with `crashes` + 1 (see `rescues`); one that came back so is claimed
alone, because it may be what killed the worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from store.connection import Connection, Row

_ASK_FOR_DUE = "SET @novel_job_type = %s"
# KEY due, one jump to each source and one to its first unit, however many wait. A loop, because the optimizer walks
# over every entry otherwise: by GROUP BY, whose loose scan it takes only with statistics that this table never has,
# and by a recursive query, whose steps are no ranges to it. Each SELECT is a statement of its own: within an IF or SET
# it would wait for the locks of other claims.
_FIND_DUE = """
    BEGIN NOT ATOMIC
        DECLARE wanted, this VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
        DECLARE due_at DATETIME(6);
        DECLARE found LONGTEXT DEFAULT '[]';
        SET wanted = @novel_job_type;
        SELECT MIN(source) INTO this FROM wp_novel_ingest_ready FORCE INDEX (due) WHERE job_type = wanted;
        WHILE this IS NOT NULL DO
            SELECT MIN(next_run_at) INTO due_at FROM wp_novel_ingest_ready FORCE INDEX (due)
            WHERE job_type = wanted AND source = this;
            IF due_at <= UTC_TIMESTAMP(6) THEN
                SET found = JSON_ARRAY_APPEND(found, '$', this);
            END IF;
            SELECT MIN(source) INTO this FROM wp_novel_ingest_ready FORCE INDEX (due)
            WHERE job_type = wanted AND source > this;
        END WHILE;
        SET @novel_due = found;
    END
"""
_DUE_FOUND = "SELECT @novel_due"
# For MySQL, which has no such blocks. KEY due, only its leading columns.
_DUE_SOURCES = """
    SELECT source FROM wp_novel_ingest_ready FORCE INDEX (due)
    WHERE job_type = %s GROUP BY job_type, source HAVING MIN(next_run_at) <= UTC_TIMESTAMP(6)
"""
# KEY due: equality, then order. Rows that another claim holds are passed over.
_LOCK_DUE = """
    SELECT id, job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, attempts,
        crashes, next_run_at, created_at
    FROM wp_novel_ingest_ready FORCE INDEX (due)
    WHERE job_type = %s AND source = %s AND next_run_at <= UTC_TIMESTAMP(6)
    ORDER BY next_run_at, id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_INSERT_LEASE = """
    INSERT INTO wp_novel_ingest_leases
        (id, job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, attempts,
         crashes, next_run_at, created_at, worker_id, claimed_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6))
"""
# PRIMARY, a point for each id.
_DELETE_READY = """
    DELETE r FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_ready r FORCE INDEX (PRIMARY) ON r.id = w.id
"""
# UNIQUE request_id. Only the first claim of a request finds it queued.
_MARK_PROCESSING = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (request_id CHAR(36) PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_requests r FORCE INDEX (request_id) ON r.request_id = w.request_id
    SET r.status = 1, r.updated_at = UTC_TIMESTAMP() WHERE r.status = 0
"""
# PRIMARY.
_END_LEASES = """
    DELETE l FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_leases l FORCE INDEX (PRIMARY) ON l.id = w.id WHERE l.worker_id = %s
"""
# KEY by_worker.
_HELD = """
    SELECT id, job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, attempts,
        crashes, next_run_at, created_at
    FROM wp_novel_ingest_leases WHERE worker_id = %s ORDER BY id FOR UPDATE
"""
_INSERT_READY = """
    INSERT INTO wp_novel_ingest_ready
        (id, job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, attempts,
         crashes, next_run_at, created_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_INSERT_WAITING = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, attempts, crashes,
         created_at, waiting_for, next_run_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND)
"""
# KEY waiting. It locks nothing: who comes to units by this index and locks them deadlocks with a claim, which comes by
# another one. Units that are being queued at this moment are for their worker to release, once it has committed them.
_WAITING_FOR = """
    SELECT r.id
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (source VARCHAR(40) PATH '$[0]', ref VARCHAR(191) PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (source_story) ON s.source = w.source AND s.source_story_id = w.ref
    STRAIGHT_JOIN wp_novel_ingest_ready r FORCE INDEX (waiting) ON r.source = w.source AND r.waiting_for = w.ref
"""
# PRIMARY, a point for each id.
_RELEASE = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_ready r FORCE INDEX (PRIMARY) ON r.id = w.id
    SET r.next_run_at = LEAST(r.next_run_at, UTC_TIMESTAMP(6)), r.waiting_for = NULL WHERE r.waiting_for IS NOT NULL
"""
# KEY waiting, in its order.
_WAITED_FOR = """
    SELECT DISTINCT source, waiting_for FROM wp_novel_ingest_ready FORCE INDEX (waiting)
    WHERE waiting_for IS NOT NULL AND (source > %s OR (source = %s AND waiting_for > %s))
    ORDER BY source, waiting_for LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Unit:
    id: int
    job_type: str
    source: str
    request_id: str
    blob_id: int
    first: int
    last: int
    items: int
    payload_bytes: int
    attempts: int
    """Failures so far; all its jobs have had as many."""
    crashes: int
    next_run_at: datetime
    created_at: datetime

    def values(self) -> tuple[object, ...]:
        return (
            *(self.id, self.job_type, self.source, self.request_id, self.blob_id, self.first, self.last, self.items),
            *(self.payload_bytes, self.attempts, self.crashes, self.next_run_at, self.created_at),
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A part of a unit that is to be tried again later."""

    of: Unit
    first: int
    last: int
    items: int
    payload_bytes: int
    attempts: int
    crashes: int
    delay_seconds: float
    waiting_for: str | None = None


class LeaseLost(Exception):
    """Another has taken over what this worker held."""


async def due_sources(conn: Connection, job_type: str) -> list[str]:
    """Sources that have something due, in their order."""
    if not conn.dialect.is_mariadb:
        return sorted(source for (source,) in await conn.fetch_all(_DUE_SOURCES, (job_type,)))
    await conn.execute(_ASK_FOR_DUE, (job_type,))
    await conn.execute(_FIND_DUE)
    found: list[str] = orjson.loads((await conn.fetch_all(_DUE_FOUND))[0][0])
    return found


async def claim(
    conn: Connection, sources: Sequence[str], *, job_type: str, worker_id: int, max_items: int, max_units: int
) -> list[Unit]:
    """Take units that are due, of each of these sources in turn, until there are enough items."""
    taken: list[Unit] = []
    for source in sources:
        rows = await conn.fetch_all(_LOCK_DUE, (job_type, source, max_units))
        chosen = choose([_unit(row) for row in rows], taken=taken, max_items=max_items)
        taken += chosen
        if is_full(taken, max_items=max_items) or len(chosen) < len(rows):
            break
    if taken:
        await conn.execute_many(_INSERT_LEASE, [(*unit.values(), worker_id) for unit in taken])
        await conn.execute(_DELETE_READY, (_ids(taken),))
        requests = sorted({unit.request_id for unit in taken})
        await conn.execute(_MARK_PROCESSING, (orjson.dumps(requests).decode(),))
    return taken


def choose(due: Sequence[Unit], *, taken: Sequence[Unit], max_items: int) -> list[Unit]:
    """Those that fit beside what is taken. What came back from a dead worker goes alone."""
    chosen: list[Unit] = []
    items = sum(unit.items for unit in taken)
    for unit in due:
        is_first = not (taken or chosen)
        if not is_first and (unit.crashes or items + unit.items > max_items):
            break
        chosen.append(unit)
        items += unit.items
        if unit.crashes:
            break
    return chosen


def is_full(taken: Sequence[Unit], *, max_items: int) -> bool:
    return sum(unit.items for unit in taken) >= max_items or any(unit.crashes for unit in taken)


async def end_leases(conn: Connection, units: Sequence[Unit], *, worker_id: int) -> None:
    """Give up the leases, or raise LeaseLost if not all of them are ours: then this transaction may change nothing."""
    if await conn.execute(_END_LEASES, (_ids(units), worker_id)) != len(units):
        raise LeaseLost


async def give_back(conn: Connection, units: Sequence[Unit], *, worker_id: int) -> None:
    """Return units as they were, to whoever comes next. It counts as no attempt."""
    if units:
        await end_leases(conn, units, worker_id=worker_id)
        await conn.execute_many(_INSERT_READY, [unit.values() for unit in units])


async def held(conn: Connection, *, worker_id: int) -> list[Unit]:
    """What a worker holds, locked until the end of the transaction."""
    return [_unit(row) for row in await conn.fetch_all(_HELD, (worker_id,))]


async def add_waiting(conn: Connection, waiting: Sequence[Waiting]) -> None:
    """Queue parts of units again, to be tried later."""
    rows = [
        (
            *(part.of.job_type, part.of.source, part.of.request_id, part.of.blob_id, part.first, part.last),
            *(part.items, part.payload_bytes, part.attempts, part.crashes, part.of.created_at, part.waiting_for),
            round(part.delay_seconds * 1e6),
        )
        for part in waiting
    ]
    if rows:
        await conn.execute_many(_INSERT_WAITING, rows)


async def release_waiting(conn: Connection, stories: Sequence[tuple[str, str]]) -> int:
    """Make due what waits for stories (source, source's id), if they are there; returns how many units."""
    if not stories:
        return 0
    wanted = orjson.dumps(sorted(set(stories))).decode()
    waiting = sorted(unit_id for (unit_id,) in await conn.fetch_all(_WAITING_FOR, (wanted,)))
    return await conn.execute(_RELEASE, (orjson.dumps(waiting).decode(),)) if waiting else 0


async def waited_for(conn: Connection, *, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
    """The next stories (source, source's id) for which something waits; ("", "") stands before the first."""
    source, ref = after
    rows = await conn.fetch_all(_WAITED_FOR, (source, source, ref, limit))
    return [(row[0], row[1]) for row in rows]


def _unit(row: Row) -> Unit:
    return Unit(*row)


def _ids(units: Sequence[Unit]) -> str:
    return orjson.dumps([unit.id for unit in units]).decode()
