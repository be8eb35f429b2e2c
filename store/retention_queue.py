"""Retention of the queue's tables: jobs first, requests once none of their jobs is left, payloads that no job needs."""

from datetime import datetime
from typing import Final

from runtime.worker_settings import RetentionSettings
from store import ingest_jobs, ingest_requests, retention
from store.connection import Connection, Row
from store.retention import DAY_SECONDS, Kind, Piece, Purge, as_json, in_turn

# Each may have megabytes.
PIECE_BLOBS = 20
# Long enough that what is still needed does not stand before what is not.
NEEDED_HOURS = 24

_COMPLETED: Final = ingest_jobs.STATUSES.index("completed")
_FAILED: Final = ingest_jobs.STATUSES.index("failed")
_DEAD: Final = ingest_jobs.STATUSES.index("dead_letter")


def purges(settings: RetentionSettings, *, idempotency_hours: int) -> tuple[Purge, ...]:
    """In the order in which one leaves work for the next."""
    return _jobs(settings), _requests(settings, idempotency_hours=idempotency_hours), _payloads()


# -- jobs -----------------------------------------------------------------------------------------------

# KEY due: of a job that has ended, next_run_at is the time at which it did.
_FIND_JOBS = """
    SELECT id, TIMESTAMPDIFF(SECOND, next_run_at, UTC_TIMESTAMP())
    FROM wp_novel_ingest_jobs FORCE INDEX (due)
    WHERE status = %s AND next_run_at < UTC_TIMESTAMP() - INTERVAL %s SECOND ORDER BY next_run_at, id LIMIT %s
"""
# PRIMARY, a point for each id. A dead letter may have been queued again since it was found.
_DELETE_JOBS = """
    DELETE j FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_jobs j FORCE INDEX (PRIMARY) ON j.id = w.id
    WHERE j.status = %s AND j.next_run_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""


def _jobs(settings: RetentionSettings) -> Purge:
    days = {_COMPLETED: settings.completed_days, _FAILED: settings.failed_days, _DEAD: settings.failed_days}
    return in_turn(
        "jobs",
        [Kind(_FIND_JOBS, _DELETE_JOBS, (status,), kept * DAY_SECONDS) for status, kept in days.items()],
    )


# -- requests -------------------------------------------------------------------------------------------

# KEY by_status, whose entries end with the id, from a place on; KEY by_request of the jobs, one entry for each.
_FIND_REQUESTS = """
    SELECT r.id, r.updated_at,
        (SELECT j.id FROM wp_novel_ingest_jobs j FORCE INDEX (by_request) WHERE j.request_id = r.request_id LIMIT 1),
        TIMESTAMPDIFF(SECOND, r.updated_at, UTC_TIMESTAMP())
    FROM wp_novel_ingest_requests r FORCE INDEX (by_status)
    WHERE r.status = %s AND r.updated_at >= %s AND r.updated_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
        AND (r.updated_at > %s OR r.id > %s)
    ORDER BY r.updated_at, r.id LIMIT %s
"""
# PRIMARY, a point for each id. No job comes to a request that has ended and has none.
_DELETE_REQUESTS = """
    DELETE r FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_requests r FORCE INDEX (PRIMARY) ON r.id = w.id
    WHERE r.status = %s AND r.updated_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""
_BEGINNING: Final = "1970-01-01 00:00:00"


def _requests(settings: RetentionSettings, *, idempotency_hours: int) -> Purge:
    days = {
        "completed": settings.completed_days,
        "partially_failed": max(settings.completed_days, settings.failed_days),  # it has jobs of both kinds
        "failed": settings.failed_days,
    }
    # A request is never younger than its last change, so what has this age has also had its idempotency.
    kept_seconds = {
        ingest_requests.STATUSES.index(status): max(kept * DAY_SECONDS, idempotency_hours * 3600)
        for status, kept in days.items()
    }
    statuses = sorted(kept_seconds)

    async def oldest(conn: Connection, status: int, time: datetime | str, after_id: int, limit: int) -> list[Row]:
        return await conn.fetch_all(_FIND_REQUESTS, (status, time, kept_seconds[status], time, after_id, limit))

    async def piece(conn: Connection, place: str | None) -> Piece:
        """Goes past those that still have jobs: the next turn looks at them again."""
        status, time, after_id = _place_of(place or f"{statuses[0]}|{_BEGINNING}|0")
        found = await oldest(conn, status, time, after_id, retention.PIECE_ROWS)
        free = sorted(row[0] for row in found if row[2] is None)
        rows = await conn.execute(_DELETE_REQUESTS, (as_json(free), status, kept_seconds[status])) if free else 0
        if len(found) == retention.PIECE_ROWS:
            return Piece(rows, f"{status}|{found[-1][1]}|{found[-1][0]}")
        later = [other for other in statuses if other > status]
        return Piece(rows, f"{later[0]}|{_BEGINNING}|0" if later else None)

    async def lag_seconds(conn: Connection) -> float:
        lag = 0.0
        for status in statuses:
            for row in await oldest(conn, status, _BEGINNING, 0, 1):
                lag = max(lag, float(row[-1] - kept_seconds[status]))
        return lag

    return Purge("requests", piece, lag_seconds)


def _place_of(text: str) -> tuple[int, str, int]:
    status, time, after_id = text.split("|")
    return int(status), time, int(after_id)


# -- payloads -------------------------------------------------------------------------------------------

# KEY by_expires_at; KEY by_payload_blob of the jobs, the few hundred of each blob at most.
_FIND_PAYLOADS = """
    SELECT b.id,
        (SELECT j.id FROM wp_novel_ingest_jobs j FORCE INDEX (by_payload_blob)
         WHERE j.payload_blob_id = b.id AND j.status <> %s LIMIT 1),
        TIMESTAMPDIFF(SECOND, b.expires_at, UTC_TIMESTAMP())
    FROM wp_novel_ingest_payload_blobs b FORCE INDEX (by_expires_at)
    WHERE b.expires_at < UTC_TIMESTAMP() ORDER BY b.expires_at, b.id LIMIT %s
"""
# PRIMARY, a point for each id. One that a dead letter's replay needs meanwhile is due no more.
_DELETE_PAYLOADS = """
    DELETE b FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_payload_blobs b FORCE INDEX (PRIMARY) ON b.id = w.id
    WHERE b.expires_at < UTC_TIMESTAMP()
"""
# PRIMARY, a point for each id.
_KEEP_PAYLOADS = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_ingest_payload_blobs b FORCE INDEX (PRIMARY) ON b.id = w.id
    SET b.expires_at = UTC_TIMESTAMP() + INTERVAL %s HOUR
    WHERE b.expires_at < UTC_TIMESTAMP()
"""


def _payloads() -> Purge:
    async def piece(conn: Connection, place: str | None) -> Piece:
        found = await conn.fetch_all(_FIND_PAYLOADS, (_COMPLETED, PIECE_BLOBS))
        needed = sorted(blob_id for blob_id, job_id, _ in found if job_id is not None)
        others = sorted(blob_id for blob_id, job_id, _ in found if job_id is None)
        rows = await conn.execute(_DELETE_PAYLOADS, (as_json(others),)) if others else 0
        if needed:
            await conn.execute(_KEEP_PAYLOADS, (as_json(needed), NEEDED_HOURS))
        return Piece(rows, "" if len(found) == PIECE_BLOBS else None)

    async def lag_seconds(conn: Connection) -> float:
        return max((float(row[-1]) for row in await conn.fetch_all(_FIND_PAYLOADS, (_COMPLETED, 1))), default=0.0)

    return Purge("payloads", piece, lag_seconds)
