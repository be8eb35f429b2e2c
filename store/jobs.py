"""Jobs of claimed units: read with their payloads, and written when it is known what became of them.

`wp_novel_ingest_jobs` has one row per item. What became of an item is written in the transaction that has its effects,
together with the counters of its request, so that both are right after any crash. Only a job that is still queued can
end: whoever comes second changes nothing and finds out.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from store import ingest_requests, payloads, units
from store.connection import Connection
from store.payloads import AnyFrame
from store.units import LeaseLost, Unit, Waiting

QUEUED, COMPLETED, FAILED, DEAD = 0, 2, 3, 4

# KEY by_blob_item.
_READ = """
    SELECT w.place, j.id, j.item_index, j.payload_offset, j.payload_size_bytes
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        place INT PATH '$[0]', blob_id BIGINT UNSIGNED PATH '$[1]', first_item INT PATH '$[2]',
        last_item INT PATH '$[3]'
    )) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (by_blob_item)
        ON j.payload_blob_id = w.blob_id AND j.item_index BETWEEN w.first_item AND w.last_item
    WHERE j.status = 0 ORDER BY w.place, j.item_index
"""
# PRIMARY.
_PAYLOADS = """
    SELECT b.id, SUBSTRING(b.payload_blob, w.start + 1, w.length)
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        blob_id BIGINT UNSIGNED PATH '$[0]', start BIGINT UNSIGNED PATH '$[1]', length BIGINT UNSIGNED PATH '$[2]'
    )) w
    STRAIGHT_JOIN wp_novel_ingest_payload_blobs b FORCE INDEX (PRIMARY) ON b.id = w.blob_id
"""
# PRIMARY. An ended job is due never again: next_run_at says since when.
_COMPLETE = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (PRIMARY) ON j.id = w.id
    SET j.status = 2, j.is_stale = %s, j.attempts = %s, j.error_code = NULL, j.last_error = NULL,
        j.next_run_at = UTC_TIMESTAMP(), j.updated_at = UTC_TIMESTAMP()
    WHERE j.status = 0
"""
# PRIMARY.
_WRITE = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (
        id BIGINT UNSIGNED PATH '$[0]', status TINYINT UNSIGNED PATH '$[1]', attempts SMALLINT UNSIGNED PATH '$[2]',
        crashes SMALLINT UNSIGNED PATH '$[3]', delay BIGINT PATH '$[4]', code VARCHAR(40) PATH '$[5]',
        message VARCHAR(1000) PATH '$[6]'
    )) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (PRIMARY) ON j.id = w.id
    SET j.status = w.status, j.attempts = w.attempts, j.crashes = w.crashes, j.error_code = w.code,
        j.last_error = w.message, j.next_run_at = UTC_TIMESTAMP() + INTERVAL w.delay SECOND,
        j.updated_at = UTC_TIMESTAMP()
    WHERE j.status = 0
"""
# KEY by_blob_item: the few hundred jobs of each blob. A statement of its own, because within an UPDATE it would lock
# jobs that other workers are ending. Who ends the last ones at the same time comes after us: see `count_ended`.
_USED_UP = """
    SELECT w.blob_id FROM JSON_TABLE(%s, '$[*]' COLUMNS (blob_id BIGINT UNSIGNED PATH '$')) w
    WHERE NOT EXISTS (
        SELECT 1 FROM wp_novel_ingest_jobs j FORCE INDEX (by_blob_item)
        WHERE j.payload_blob_id = w.blob_id AND j.status <> 2)
"""
# PRIMARY.
_EXPIRE_PAYLOADS = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (blob_id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_payload_blobs b FORCE INDEX (PRIMARY) ON b.id = w.blob_id
    SET b.expires_at = LEAST(b.expires_at, UTC_TIMESTAMP() + INTERVAL %s MINUTE)
"""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One item, to be applied. Two are equal if they are the same: comparing payloads would take long."""

    id: int
    unit: Unit
    index: int
    payload_bytes: int
    frame: AnyFrame | None
    """None: its payload is gone or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a job."""

    job: Job
    status: int
    attempts: int
    is_stale: bool = False
    code: str | None = None
    message: str | None = None
    delay_seconds: float = 0.0
    waiting_for: str | None = None
    crashes: int | None = None


async def load(conn: Connection, claimed: Sequence[Unit]) -> list[Job]:
    """The jobs of these units that are still to be done, in order, with their payloads."""
    wanted = [(place, unit.blob_id, unit.first, unit.last) for place, unit in enumerate(claimed)]
    rows = await conn.fetch_all(_READ, (orjson.dumps(wanted).decode(),))
    spans: dict[int, tuple[int, int]] = {}
    for place, _, _, offset, size in rows:
        blob_id = claimed[place].blob_id
        start, end = spans.get(blob_id, (offset, offset))
        spans[blob_id] = min(start, offset), max(end, offset + size)
    pieces = [(blob_id, start, end - start) for blob_id, (start, end) in spans.items()]
    contents: dict[int, bytes] = (
        dict(await conn.fetch_all(_PAYLOADS, (orjson.dumps(pieces).decode(),))) if pieces else {}
    )
    frames = payloads.decode_many(
        (contents.get(claimed[place].blob_id, b""), offset - spans[claimed[place].blob_id][0], size)
        for place, _, _, offset, size in rows
    )
    return [
        Job(job_id, claimed[place], index, size, frame)
        for (place, job_id, index, _, size), frame in zip(rows, frames, strict=True)
    ]


async def write(conn: Connection, verdicts: Sequence[Verdict], *, payload_minutes: int) -> None:
    """Write what became of jobs, count it in their requests, and queue again what is to be tried later.

    Raises LeaseLost if one of them has ended before.
    """
    await _write_jobs(conn, verdicts)
    await units.add_waiting(conn, waiting_parts(verdicts))
    await _count(conn, verdicts)
    await _expire_payloads(conn, verdicts, payload_minutes=payload_minutes)


def waiting_parts(verdicts: Sequence[Verdict]) -> list[Waiting]:
    """Units of their own for jobs to be tried again: neighbours with the same fate stay together."""
    parts: list[Waiting] = []
    last: Verdict | None = None
    for verdict in verdicts:
        if verdict.status != QUEUED:
            last = None  # whoever follows is no neighbour of what came before: this one lies between them
            continue
        job = verdict.job
        if last is not None and _same_fate(last, verdict):
            part = parts.pop()
            parts.append(
                Waiting(
                    of=part.of,
                    first=part.first,
                    last=job.index,
                    items=part.items + 1,
                    payload_bytes=part.payload_bytes + job.payload_bytes,
                    attempts=part.attempts,
                    crashes=part.crashes,
                    delay_seconds=part.delay_seconds,
                    waiting_for=part.waiting_for,
                )
            )
        else:
            parts.append(
                Waiting(
                    of=job.unit,
                    first=job.index,
                    last=job.index,
                    items=1,
                    payload_bytes=job.payload_bytes,
                    attempts=verdict.attempts,
                    crashes=job.unit.crashes if verdict.crashes is None else verdict.crashes,
                    delay_seconds=verdict.delay_seconds,
                    waiting_for=verdict.waiting_for,
                )
            )
        last = verdict
    return parts


def _same_fate(one: Verdict, other: Verdict) -> bool:
    """Whether two neighbours can wait together: for the same story, after as many failures."""
    return (
        one.job.unit.id == other.job.unit.id
        and one.waiting_for is not None
        and one.waiting_for == other.waiting_for
        and one.attempts == other.attempts
    )


async def _write_jobs(conn: Connection, verdicts: Sequence[Verdict]) -> None:
    changed = 0
    completed: dict[tuple[bool, int], list[int]] = defaultdict(list)
    others = []
    for verdict in verdicts:
        if verdict.status == COMPLETED:
            completed[verdict.is_stale, verdict.attempts].append(verdict.job.id)
            continue
        crashes = verdict.job.unit.crashes if verdict.crashes is None else verdict.crashes
        message = ingest_requests.readable(verdict.message)
        delay = round(verdict.delay_seconds)
        others.append((verdict.job.id, verdict.status, verdict.attempts, crashes, delay, verdict.code, message))
    for (is_stale, attempts), ids in completed.items():
        changed += await conn.execute(_COMPLETE, (orjson.dumps(sorted(ids)).decode(), int(is_stale), attempts))
    if others:
        changed += await conn.execute(_WRITE, (orjson.dumps(sorted(others, key=lambda row: row[0])).decode(),))
    if changed != len(verdicts):
        raise LeaseLost


async def _count(conn: Connection, verdicts: Sequence[Verdict]) -> None:
    ended: dict[str, ingest_requests.Ended] = {}
    for verdict in verdicts:
        if verdict.status != QUEUED:
            counted = ended.setdefault(verdict.job.unit.request_id, ingest_requests.Ended())
            counted.add(failed=verdict.status != COMPLETED, message=verdict.message)
    if ended:
        await ingest_requests.count_ended(conn, ended)


async def _expire_payloads(conn: Connection, verdicts: Sequence[Verdict], *, payload_minutes: int) -> None:
    """Let go of payloads of which every item is completed. Any other is kept for as long as it may be replayed."""
    blob_ids = sorted({verdict.job.unit.blob_id for verdict in verdicts if verdict.status == COMPLETED})
    if not blob_ids:
        return
    used_up = sorted(blob_id for (blob_id,) in await conn.fetch_all(_USED_UP, (orjson.dumps(blob_ids).decode(),)))
    if used_up:
        await conn.execute(_EXPIRE_PAYLOADS, (orjson.dumps(used_up).decode(), payload_minutes))
