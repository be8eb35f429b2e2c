"""Rows that stand alone are deleted when they are due, no others, a small piece at a time and by an index."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import retention
from store.connection import Connection
from store.pool import Pool
from store.retention import DAY_SECONDS, Piece, Purge
from tests.store.conftest import MakePool
from tests.store.counted_stories import Reads

DAY = DAY_SECONDS
MANY = 20_000
# `{ages}` is a table of numbers (seq) and ages in seconds.
_NONCES = """
    INSERT INTO wp_novel_nonce_replay (nonce_hash, key_id, expires_at)
    SELECT UNHEX(SHA2(seq, 256)), 'nk', UTC_TIMESTAMP() - INTERVAL age SECOND FROM {ages}
"""
_RATE_WINDOWS = """
    INSERT INTO wp_novel_rate_windows (scope, bucket, expires_at)
    SELECT CONCAT('\\'"é😀 ', seq DIV 3), seq, UTC_TIMESTAMP() - INTERVAL age SECOND FROM {ages}
"""
_LOGS = """
    INSERT INTO wp_novel_sync_logs (event_type, level, message, created_at)
    SELECT '{event}', 'info', '', UTC_TIMESTAMP() - INTERVAL age SECOND FROM {ages}
"""
_HISTORY = """
    INSERT INTO wp_novel_reading_history (user_id, story_id, chapter_id, read_at)
    SELECT seq, 1, seq, UTC_TIMESTAMP() - INTERVAL age SECOND FROM {ages}
"""
_TOKENS = """
    INSERT INTO wp_novel_refresh_tokens (user_id, token_hash, issued_at, expires_at)
    SELECT seq, UNHEX(SHA2(seq, 256)), '2026-01-01', UTC_TIMESTAMP() - INTERVAL age SECOND FROM {ages}
"""
_EVENTS = """
    INSERT INTO wp_novel_events (event_type, story_id, created_at)
    SELECT 'story.updated', seq, UTC_TIMESTAMP(6) - INTERVAL age SECOND FROM {ages}
"""
_MINUTES = """
    INSERT INTO wp_novel_ingest_minutes (minute, job_type, source)
    SELECT UTC_TIMESTAMP() - INTERVAL age SECOND, 'chapters_bulk', CONCAT('s', seq) FROM {ages}
"""


@dataclass(frozen=True)
class Kept:
    """A table whose rows are kept for a time, and how to fill it."""

    task: str
    insert: str
    table: str
    seconds: int
    column: str

    def make(self, conn: PlainConnection, ages: Sequence[int], *, first: int = 1) -> None:
        """Rows of these ages in seconds, which may lie ahead."""
        numbered = " UNION ALL ".join(f"SELECT {number} seq, {age} age" for number, age in enumerate(ages, first))
        conn.execute(self.insert.replace("{ages}", f"({numbered}) ages"))

    def make_many(self, conn: PlainConnection, count: int, *, age: int) -> None:
        conn.execute(
            self.insert.replace(
                "{ages}",
                f"(SELECT seq, {age} - CAST(seq MOD 1000 AS SIGNED) age FROM seq_1000001_to_{1000000 + count}) ages",
            )
        )

    def ages(self, conn: PlainConnection) -> list[int]:
        """Of what is left, in whole days over or under the time it is kept; the oldest first."""
        rows = conn.fetch_all(
            f"SELECT TIMESTAMPDIFF(SECOND, {self.column}, UTC_TIMESTAMP()) FROM {self.table} ORDER BY {self.column}"
        )
        return [round((age - self.seconds) / 3600) for (age,) in rows]

    def count(self, conn: PlainConnection) -> int:
        return int(conn.fetch_all(f"SELECT COUNT(*) FROM {self.table}")[0][0])


LOGS = _LOGS.replace("{event}", "schema.migrated")
SECURITY_LOGS = _LOGS.replace("{event}", "api_key.created")
KEPT = {
    "nonces": Kept("nonces", _NONCES, "wp_novel_nonce_replay", 0, "expires_at"),
    "rate_windows": Kept("rate_windows", _RATE_WINDOWS, "wp_novel_rate_windows", 0, "expires_at"),
    "logs": Kept("logs", LOGS, "wp_novel_sync_logs", 30 * DAY, "created_at"),
    "security_logs": Kept("logs", SECURITY_LOGS, "wp_novel_sync_logs", 90 * DAY, "created_at"),
    "history": Kept("history", _HISTORY, "wp_novel_reading_history", 90 * DAY, "read_at"),
    "tokens": Kept("tokens", _TOKENS, "wp_novel_refresh_tokens", 7 * DAY, "expires_at"),
    "events": Kept("events", _EVENTS, "wp_novel_events", 90 * DAY, "created_at"),
    "old_minutes": Kept("old_minutes", _MINUTES, "wp_novel_ingest_minutes", 30 * DAY, "minute"),
}
every_kind = pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT.keys())


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(retention, "PIECE_ROWS", 3)
    return 3


def purge_of(settings: Settings, task: str) -> Purge:
    (found,) = [purge for purge in retention.purges(settings.retention) if purge.task == task]
    return found


async def one_piece(pool: Pool, purge: Purge, place: str | None = None) -> Piece:
    return await pool.transaction(lambda conn: purge.piece(conn, place))


async def sweep(pool: Pool, purge: Purge, place: str | None = None) -> list[Piece]:
    """All pieces from a place to the end."""
    pieces = [await one_piece(pool, purge, place)]
    while pieces[-1].place is not None:
        assert len(pieces) < 1000, "no end"
        pieces.append(await one_piece(pool, purge, pieces[-1].place))
    return pieces


async def lag_seconds(pool: Pool, purge: Purge) -> float:
    assert purge.lag_seconds is not None
    async with pool.reading() as conn:
        return await purge.lag_seconds(conn)


class Meanwhile:
    """A connection between whose first read and first change something else happens."""

    def __init__(self, conn: Connection, act: Callable[[], object]) -> None:
        self._conn = conn
        self._act: Callable[[], object] | None = act

    async def fetch_all(self, sql: str, parameters: Any = ()) -> Any:
        return await self._conn.fetch_all(sql, parameters)

    async def fetch_one(self, sql: str, parameters: Any = ()) -> Any:
        return await self._conn.fetch_one(sql, parameters)

    async def execute(self, sql: str, parameters: Any = ()) -> int:
        if self._act:
            self._act()
            self._act = None
        return await self._conn.execute(sql, parameters)


def meanwhile(purge: Purge, act: Callable[[], object]) -> Callable[[Connection], Awaitable[Piece]]:
    return lambda conn: purge.piece(cast(Connection, Meanwhile(conn, act)), None)


@every_kind
async def test_what_is_due_is_deleted_and_nothing_else(
    pool: Pool, conn: PlainConnection, test_settings: Settings, kept: Kept
) -> None:
    hours = [-1000, -1, 1, 1000]
    kept.make(conn, [kept.seconds + hour * 3600 for hour in hours])
    pieces = await sweep(pool, purge_of(test_settings, kept.task))
    assert sum(piece.rows for piece in pieces) == 2
    assert kept.ages(conn) == [-1, -1000]


@every_kind
async def test_an_empty_table_is_one_piece_without_rows(pool: Pool, test_settings: Settings, kept: Kept) -> None:
    assert await sweep(pool, purge_of(test_settings, kept.task)) == [Piece(0, None)]


@every_kind
@pytest.mark.parametrize("due", [3, 7])
async def test_each_piece_is_small_and_there_are_no_more_than_it_takes(
    pool: Pool, conn: PlainConnection, test_settings: Settings, small_pieces: int, kept: Kept, due: int
) -> None:
    kept.make(conn, [kept.seconds + DAY + number for number in range(due)])
    left, purge, place, pieces = due, purge_of(test_settings, kept.task), None, 0
    while True:
        piece = await one_piece(pool, purge, place)
        pieces += 1
        assert piece.rows <= small_pieces
        left -= piece.rows
        assert kept.count(conn) == left  # already committed
        if (place := piece.place) is None:
            break
    assert left == 0
    assert pieces <= due // small_pieces + 2


@every_kind
async def test_a_purge_that_was_interrupted_goes_on_at_its_place_or_begins_anew(
    pool: Pool, conn: PlainConnection, test_settings: Settings, small_pieces: int, kept: Kept
) -> None:
    purge = purge_of(test_settings, kept.task)
    kept.make(conn, [kept.seconds + DAY] * 10)
    first = await one_piece(pool, purge)
    await sweep(pool, purge, first.place)
    assert kept.count(conn) == 0
    kept.make(conn, [kept.seconds + DAY] * 10)
    await one_piece(pool, purge)
    await sweep(pool, purge)
    assert kept.count(conn) == 0


@every_kind
async def test_a_piece_that_fails_has_deleted_nothing(
    pool: Pool, conn: PlainConnection, test_settings: Settings, kept: Kept
) -> None:
    kept.make(conn, [kept.seconds + DAY] * 3)

    async def work(inside: Connection) -> None:
        assert (await purge_of(test_settings, kept.task).piece(inside, None)).rows == 3
        raise RuntimeError("before COMMIT")

    with pytest.raises(RuntimeError):
        await pool.transaction(work)
    assert kept.count(conn) == 3


@every_kind
async def test_two_purges_at_once_delete_each_row_once_and_no_other(
    make_pool: MakePool, conn: PlainConnection, test_settings: Settings, small_pieces: int, kept: Kept
) -> None:
    kept.make(conn, [kept.seconds + (DAY if number % 2 else -DAY) for number in range(40)])
    purge = purge_of(test_settings, kept.task)
    pools = [make_pool(size=1) for _ in range(2)]
    both = await asyncio.gather(*(sweep(pool, purge) for pool in pools))
    assert sum(piece.rows for pieces in both for piece in pieces) == 20
    assert kept.ages(conn) == [-24] * 20


@every_kind
async def test_a_row_that_was_renewed_since_it_was_found_stays(
    pool: Pool, conn: PlainConnection, test_settings: Settings, kept: Kept
) -> None:
    kept.make(conn, [kept.seconds + DAY] * 2)
    purge = purge_of(test_settings, kept.task)
    assert (
        await pool.transaction(
            meanwhile(
                purge,
                lambda: conn.execute(
                    f"UPDATE {kept.table} SET {kept.column} = UTC_TIMESTAMP() + INTERVAL 1 HOUR LIMIT 1"
                ),
            )
        )
    ).rows == 1
    assert kept.count(conn) == 1


@every_kind
async def test_a_piece_reads_no_more_than_it_deletes_however_many_rows_stand_beside(
    pool: Pool, conn: PlainConnection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch, kept: Kept
) -> None:
    monkeypatch.setattr(retention, "PIECE_ROWS", 50)
    purge = purge_of(test_settings, kept.task)
    kept.make_many(conn, MANY, age=kept.seconds - DAY)
    kept.make(conn, [kept.seconds + DAY] * 120)

    async def work(inside: Connection) -> None:
        place = None
        for _ in range(3):
            async with Reads(inside) as reads:
                piece = await purge.piece(inside, place)
            place = piece.place
            assert reads.entries <= 50 + 5  # the rows that are found, or that a sweep passes
            assert reads.rows <= 2 * 50 + 5  # the list of their keys, and each of them for its deletion
        if purge.lag_seconds:
            async with Reads(inside) as reads:
                await purge.lag_seconds(inside)
            assert reads.entries + reads.rows <= 5

    await pool.transaction(work)
    assert kept.count(conn) in (MANY, MANY + 120)  # a sweep is still far from them


@every_kind
async def test_the_lag_is_how_long_the_oldest_row_is_due(
    pool: Pool, conn: PlainConnection, test_settings: Settings, kept: Kept
) -> None:
    purge = purge_of(test_settings, kept.task)
    kept.make(conn, [kept.seconds - DAY, kept.seconds + 3 * DAY, kept.seconds + DAY])
    if purge.lag_seconds:
        assert round(await lag_seconds(pool, purge) / DAY) == 3
    pieces = await sweep(pool, purge)
    if purge.lag_seconds:
        assert await lag_seconds(pool, purge) <= 0
    else:
        assert round(max(piece.late_seconds for piece in pieces) / DAY) == 3


@pytest.mark.parametrize(
    "kept", [kept for name, kept in KEPT.items() if name != "old_minutes"], ids=lambda kept: kept.task
)
async def test_a_row_without_a_date_is_older_than_any(
    pool: Pool, conn: PlainConnection, test_settings: Settings, kept: Kept
) -> None:
    """PHP can write 0000-00-00, of which the server computes no age. Only we write minutes."""
    kept.make(conn, [0, kept.seconds + DAY])
    conn.execute(f"UPDATE {kept.table} SET {kept.column} = '0000-00-00' ORDER BY {kept.column} DESC LIMIT 1")
    purge = purge_of(test_settings, kept.task)
    if purge.lag_seconds:
        assert await lag_seconds(pool, purge) > 0
    pieces = await sweep(pool, purge)
    assert sum(piece.rows for piece in pieces) == 2


# -- logs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "days"),
    [
        ("administrator.promoted", 90),
        ("api_key.revoked", 90),
        ("maintenance.run", 90),
        ("replay.dead_letter", 90),
        ("user.created", 90),
        ("schema.migrated", 30),
        ("api_keys", 30),
        ("API_KEY.created", 30),
        ("users.listed", 30),
        ("a", 30),
        ("~", 30),
        ("đọc", 30),
    ],
)
async def test_logs_about_keys_administrators_and_replays_are_kept_longer(
    pool: Pool, conn: PlainConnection, test_settings: Settings, event_type: str, days: int
) -> None:
    kept = Kept("logs", _LOGS.replace("{event}", event_type), "wp_novel_sync_logs", days * DAY, "created_at")
    kept.make(conn, [days * DAY + DAY, days * DAY - DAY])
    await sweep(pool, purge_of(test_settings, "logs"))
    assert kept.ages(conn) == [-24]


async def test_every_kind_of_log_gets_its_turn(
    pool: Pool, conn: PlainConnection, test_settings: Settings, small_pieces: int
) -> None:
    kinds = ["a.first", "api_key.created", "b.nothing_due", "replay.dead_letter", "z.last"]
    for event_type in kinds:
        due = 0 if event_type == "b.nothing_due" else 4
        kept = Kept("logs", _LOGS.replace("{event}", event_type), "wp_novel_sync_logs", 30 * DAY, "created_at")
        kept.make(conn, [91 * DAY] * due + [DAY])
    purge = purge_of(test_settings, "logs")
    pieces = await sweep(pool, purge)
    assert [piece.rows for piece in pieces] == [3, 1, 3, 1, 3, 1, 3, 1, 0]
    rows = conn.fetch_all("SELECT event_type, COUNT(*) FROM wp_novel_sync_logs GROUP BY event_type ORDER BY event_type")
    assert list(rows) == [(event_type, 1) for event_type in kinds]


# -- history --------------------------------------------------------------------------------------------


async def test_a_sweep_of_the_history_passes_what_is_young_and_sees_every_row_once(
    pool: Pool, conn: PlainConnection, test_settings: Settings, small_pieces: int
) -> None:
    kept = KEPT["history"]
    kept.make(conn, [kept.seconds + (DAY if number in (1, 5, 6, 9) else -DAY) for number in range(10)])
    pieces = await sweep(pool, purge_of(test_settings, "history"))
    assert [piece.rows for piece in pieces] == [1, 1, 1, 1]
    assert kept.ages(conn) == [-24] * 6


def test_a_history_that_was_swept_is_left_alone_for_longer_than_other_tables(test_settings: Settings) -> None:
    rests = {purge.task: purge.rest_seconds for purge in retention.purges(test_settings.retention)}
    assert rests.pop("history") == retention.SWEEP_REST_SECONDS
    assert set(rests.values()) == {None}
