"""What is deleted once it has had its time, a small piece at a time.

A piece is one transaction: it finds rows by an index, in the order in which they are due, and deletes them by their
primary key, if they are still due then. It ends with the place at which the next one begins; None says that it has
reached the end. `store.retention_queue` has the tables of the queue, whose rows need one another.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from runtime.worker_settings import RetentionSettings
from store.connection import Connection, Row

PIECE_ROWS = 1000
DAY_SECONDS: Final = 86400
# Reading history has no index by time, and a whole look through it is dear: a row may stay so much longer.
SWEEP_REST_SECONDS = 6 * 3600.0

# What operators did, and what was done to keys: kept longer (§12).
SECURITY_EVENTS: Final = ("administrator.", "api_key.", "maintenance.", "replay.", "user.")


@dataclass(frozen=True, slots=True)
class Piece:
    rows: int
    """How many were deleted."""
    place: str | None
    """Where the next piece begins; None: this was the last."""
    late_seconds: float = 0.0
    """How long the oldest of them was due, where only deleting shows it."""


@dataclass(frozen=True, slots=True)
class Purge:
    """One table's way to get rid of what is due."""

    task: str
    piece: Callable[[Connection, str | None], Awaitable[Piece]]
    lag_seconds: Callable[[Connection], Awaitable[float]] | None = None
    """How long the oldest row is due by now. Without it, what the pieces say of what they deleted."""
    rest_seconds: float | None = None
    """How long to leave the table alone after its end was reached, if not as long as any other."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows that are kept equally long."""

    find: str
    """Values: those of the kind, how long a row is kept, at most how many. Answers with keys and their ages."""
    delete: str
    """Values: keys as JSON, those of the kind, how long a row is kept."""
    values: tuple[Any, ...]
    kept_seconds: int

    async def oldest(self, conn: Connection, limit: int) -> list[Row]:
        """Rows that are due, the oldest first."""
        return await conn.fetch_all(self.find, (*self.values, self.kept_seconds, limit))

    async def purge(self, conn: Connection, limit: int) -> tuple[int, bool]:
        """Delete the oldest that are due; returns how many, and whether these were all."""
        found = await self.oldest(conn, limit)
        if not found:
            return 0, True
        keys = as_json(sorted(key(row) for row in found))
        return await conn.execute(self.delete, (keys, *self.values, self.kept_seconds)), len(found) < limit

    async def lag_seconds(self, conn: Connection) -> float:
        return max((age_seconds(row) - self.kept_seconds for row in await self.oldest(conn, 1)), default=0.0)


def in_turn(task: str, kinds: Sequence[Kind]) -> Purge:
    """A purge of one kind after the other."""

    async def piece(conn: Connection, place: str | None) -> Piece:
        number = int(place or 0)
        rows, is_last = await kinds[number].purge(conn, PIECE_ROWS)
        if is_last:
            number += 1
        return Piece(rows, str(number) if number < len(kinds) else None)

    async def lag_seconds(conn: Connection) -> float:
        return max([await kind.lag_seconds(conn) for kind in kinds])

    return Purge(task, piece, lag_seconds)


def key(row: Row) -> Any:
    """The key of a row that was found: all columns but its age, in a form that JSON knows."""
    parts = [part.hex() if isinstance(part, bytes) else part for part in row[:-1]]
    return parts[0] if len(parts) == 1 else parts


def age_seconds(row: Row) -> float:
    """The age of a row that was found. PHP can write 0000-00-00, of which the server computes none: since the epoch."""
    return time.time() if row[-1] is None else float(row[-1])


def as_json(value: Any) -> str:
    return orjson.dumps(value).decode()


# KEY by_expires_at.
_FIND_NONCES = """
    SELECT nonce_hash, TIMESTAMPDIFF(SECOND, expires_at, UTC_TIMESTAMP())
    FROM wp_novel_nonce_replay FORCE INDEX (by_expires_at)
    WHERE expires_at < UTC_TIMESTAMP() - INTERVAL %s SECOND ORDER BY expires_at, nonce_hash LIMIT %s
"""
# PRIMARY, a point for each key; also in the other DELETEs.
_DELETE_NONCES = """
    DELETE n FROM JSON_TABLE(%s, '$[*]' COLUMNS (nonce CHAR(64) PATH '$')) w
    STRAIGHT_JOIN wp_novel_nonce_replay n FORCE INDEX (PRIMARY) ON n.nonce_hash = UNHEX(w.nonce)
    WHERE n.expires_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""
# KEY by_expires_at.
_FIND_RATE_WINDOWS = """
    SELECT scope, bucket, TIMESTAMPDIFF(SECOND, expires_at, UTC_TIMESTAMP())
    FROM wp_novel_rate_windows FORCE INDEX (by_expires_at)
    WHERE expires_at < UTC_TIMESTAMP() - INTERVAL %s SECOND ORDER BY expires_at, scope, bucket LIMIT %s
"""
_DELETE_RATE_WINDOWS = """
    DELETE r FROM JSON_TABLE(%s, '$[*]' COLUMNS (scope VARCHAR(120) PATH '$[0]', bucket BIGINT UNSIGNED PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_rate_windows r FORCE INDEX (PRIMARY) ON r.scope = w.scope AND r.bucket = w.bucket
    WHERE r.expires_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""
# KEY by_expires_at.
_FIND_TOKENS = """
    SELECT id, TIMESTAMPDIFF(SECOND, expires_at, UTC_TIMESTAMP())
    FROM wp_novel_refresh_tokens FORCE INDEX (by_expires_at)
    WHERE expires_at < UTC_TIMESTAMP() - INTERVAL %s SECOND ORDER BY expires_at, id LIMIT %s
"""
_DELETE_TOKENS = """
    DELETE t FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_refresh_tokens t FORCE INDEX (PRIMARY) ON t.id = w.id
    WHERE t.expires_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""
# KEY by_created_at.
_FIND_EVENTS = """
    SELECT id, TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP())
    FROM wp_novel_events FORCE INDEX (by_created_at)
    WHERE created_at < UTC_TIMESTAMP() - INTERVAL %s SECOND ORDER BY created_at, id LIMIT %s
"""
_DELETE_EVENTS = """
    DELETE e FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_events e FORCE INDEX (PRIMARY) ON e.id = w.id
    WHERE e.created_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""
# PRIMARY, from its beginning.
_FIND_MINUTES = """
    SELECT minute, job_type, source, TIMESTAMPDIFF(SECOND, minute, UTC_TIMESTAMP())
    FROM wp_novel_ingest_minutes FORCE INDEX (PRIMARY)
    WHERE minute < UTC_TIMESTAMP() - INTERVAL %s SECOND ORDER BY minute, job_type, source LIMIT %s
"""
_DELETE_MINUTES = """
    DELETE m FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        minute DATETIME PATH '$[0]', job_type VARCHAR(40) PATH '$[1]', source VARCHAR(40) PATH '$[2]'
    )) w
    STRAIGHT_JOIN wp_novel_ingest_minutes m FORCE INDEX (PRIMARY)
        ON m.minute = w.minute AND m.job_type = w.job_type AND m.source = w.source
    WHERE m.minute < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""


def purges(settings: RetentionSettings) -> tuple[Purge, ...]:
    """Those of tables whose rows stand alone."""
    tokens_seconds = settings.tokens_days * DAY_SECONDS
    events_seconds = settings.events_days * DAY_SECONDS
    minutes_seconds = settings.minutes_days * DAY_SECONDS
    return (
        in_turn("nonces", [Kind(_FIND_NONCES, _DELETE_NONCES, (), 0)]),
        in_turn("rate_windows", [Kind(_FIND_RATE_WINDOWS, _DELETE_RATE_WINDOWS, (), 0)]),
        _logs(settings),
        _history(settings),
        in_turn("tokens", [Kind(_FIND_TOKENS, _DELETE_TOKENS, (), tokens_seconds)]),
        in_turn("events", [Kind(_FIND_EVENTS, _DELETE_EVENTS, (), events_seconds)]),
        in_turn("old_minutes", [Kind(_FIND_MINUTES, _DELETE_MINUTES, (), minutes_seconds)]),
    )


# -- logs: by the kind of event -------------------------------------------------------------------------

# KEY by_event: one entry, the oldest of the next kind of event.
_NEXT_LOG = """
    SELECT event_type, TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP())
    FROM wp_novel_sync_logs FORCE INDEX (by_event)
    WHERE event_type > %s ORDER BY event_type, created_at LIMIT 1
"""
# KEY by_event.
_FIND_LOGS = """
    SELECT id, TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP())
    FROM wp_novel_sync_logs FORCE INDEX (by_event)
    WHERE event_type = %s AND created_at < UTC_TIMESTAMP() - INTERVAL %s SECOND ORDER BY created_at, id LIMIT %s
"""
_DELETE_LOGS = """
    DELETE l FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_sync_logs l FORCE INDEX (PRIMARY) ON l.id = w.id
    WHERE l.event_type = %s AND l.created_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""


def is_security(event_type: str) -> bool:
    return event_type.startswith(SECURITY_EVENTS)


def _logs(settings: RetentionSettings) -> Purge:
    def kind(event_type: str) -> Kind:
        days = settings.security_logs_days if is_security(event_type) else settings.logs_days
        return Kind(_FIND_LOGS, _DELETE_LOGS, (event_type,), days * DAY_SECONDS)

    async def piece(conn: Connection, place: str | None) -> Piece:
        """The next kind of event that has rows which are due; the kinds are few, and each costs one read."""
        after = place or ""
        while (row := await conn.fetch_one(_NEXT_LOG, (after,))) is not None:
            event_type = row[0]
            of_type = kind(event_type)
            if age_seconds(row) > of_type.kept_seconds:
                rows, is_last = await of_type.purge(conn, PIECE_ROWS)
                return Piece(rows, event_type if is_last else after)
            after = event_type
        return Piece(0, None)

    async def lag_seconds(conn: Connection) -> float:
        lag, after = 0.0, ""
        while (row := await conn.fetch_one(_NEXT_LOG, (after,))) is not None:
            after = row[0]
            lag = max(lag, age_seconds(row) - kind(after).kept_seconds)
        return lag

    return Purge("logs", piece, lag_seconds)


# -- reading history: from one end of the table to the other --------------------------------------------

# PRIMARY, a range of it. Whoever reads a chapter again makes its row young, so no index has them by age.
_SWEEP_HISTORY = """
    SELECT id, TIMESTAMPDIFF(SECOND, read_at, UTC_TIMESTAMP())
    FROM wp_novel_reading_history FORCE INDEX (PRIMARY) WHERE id > %s ORDER BY id LIMIT %s
"""
_DELETE_HISTORY = """
    DELETE h FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_reading_history h FORCE INDEX (PRIMARY) ON h.id = w.id
    WHERE h.read_at < UTC_TIMESTAMP() - INTERVAL %s SECOND
"""


def _history(settings: RetentionSettings) -> Purge:
    kept_seconds = settings.history_days * DAY_SECONDS

    async def piece(conn: Connection, place: str | None) -> Piece:
        seen = await conn.fetch_all(_SWEEP_HISTORY, (int(place or 0), PIECE_ROWS))
        old = [row for row in seen if age_seconds(row) > kept_seconds]
        rows = await conn.execute(_DELETE_HISTORY, (as_json([key(row) for row in old]), kept_seconds)) if old else 0
        late_seconds = max((age_seconds(row) - kept_seconds for row in old), default=0.0)
        return Piece(rows, str(seen[-1][0]) if len(seen) == PIECE_ROWS else None, late_seconds)

    return Purge("history", piece, rest_seconds=SWEEP_REST_SECONDS)
