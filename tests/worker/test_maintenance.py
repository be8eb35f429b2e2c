"""Tasks of maintenance: each done when it is due, by one process at a time, in turns that end and go on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import errors, minutes, retention, upkeep
from store import pool as pools
from store.connection import Connection
from store.minutes import RollUp
from store.pool import Pool
from store.redis_link import RedisLink
from tests.store.counted_stories import make_story
from tests.store.counting import counted
from worker import maintenance as upkeeping
from worker.maintenance import Maintenance, Report, Result

TASKS = (
    *("waiting_chapters", "minutes", "view_counters", "jobs", "requests", "payloads", "nonces", "rate_windows"),
    *("logs", "history", "tokens", "events", "old_minutes"),
)
_OLD_NONCES = """
    INSERT INTO wp_novel_nonce_replay (nonce_hash, key_id, expires_at)
    SELECT UNHEX(SHA2(seq, 256)), 'nk', UTC_TIMESTAMP() - INTERVAL 1 HOUR FROM seq_1_to_10
"""
_WAITING_UNIT = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, first_item, last_item, items, waiting_for, next_run_at, created_at)
    VALUES ('chapters_bulk', %s, UUID(), 0, 0, 1, %s, UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, UTC_TIMESTAMP(6))
"""

Make = Callable[..., Maintenance]


@pytest.fixture
async def make(test_settings: Settings) -> AsyncIterator[Make]:
    """Maintenance of a process of its own."""
    made: list[tuple[Pool, RedisLink]] = []

    def make(*, holder: str = "1", is_stopping: Callable[[], bool] = lambda: False) -> Maintenance:
        pool, redis = pools.from_settings(test_settings.database), RedisLink(test_settings.redis)
        made.append((pool, redis))
        return Maintenance(pool, redis, holder=holder, settings=test_settings, is_stopping=is_stopping)

    yield make
    for pool, redis in made:
        await pool.close()
        await redis.close()


def make_due(conn: PlainConnection) -> None:
    """As if enough time had passed for every task."""
    conn.execute("UPDATE wp_novel_upkeep SET next_run_at = UTC_TIMESTAMP(6)")


def expire(conn: PlainConnection) -> None:
    """As if every turn had lasted too long."""
    conn.execute("UPDATE wp_novel_upkeep SET held_until = UTC_TIMESTAMP(6), next_run_at = UTC_TIMESTAMP(6)")


def state(conn: PlainConnection, task: str, column: str) -> Any:
    return conn.fetch_all(f"SELECT {column} FROM wp_novel_upkeep WHERE task = %s", (task,))[0][0]


def nonces(conn: PlainConnection) -> int:
    return int(conn.fetch_all("SELECT COUNT(*) FROM wp_novel_nonce_replay")[0][0])


def replacing(patch: pytest.MonkeyPatch, instead: Callable[[Connection, str | None], Awaitable[RollUp]]) -> None:
    """Let the task `minutes` do this."""
    patch.setattr(minutes, "roll_up", instead)


# -- whose turn it is -----------------------------------------------------------------------------------


async def test_every_task_is_done_when_it_is_due_and_not_before(make: Make, conn: PlainConnection) -> None:
    maintenance = make()
    assert tuple(maintenance.names) == TASKS
    first = await maintenance.look()
    assert (set(first.done), first.failed, first.held) == (set(TASKS), {}, {})
    assert (await maintenance.look()).done == {}
    make_due(conn)
    assert set((await make().look()).done) == set(TASKS)


async def test_a_task_is_due_again_as_long_after_its_beginning_as_it_may_rest(
    make: Make, conn: PlainConnection, test_settings: Settings
) -> None:
    await make().look()
    rests: dict[str, int] = dict(
        conn.fetch_all(
            "SELECT task, ROUND(TIMESTAMPDIFF(MICROSECOND, finished_at, next_run_at) / 1000000 + seconds)"
            " FROM wp_novel_upkeep"
        )
    )
    expected = dict.fromkeys(TASKS, 300) | {"waiting_chapters": 60, "minutes": 60, "history": 6 * 3600}
    assert rests == expected
    assert test_settings.retention.counter_flush_seconds == 300


async def test_two_processes_never_do_a_task_at_the_same_time(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_it, most, done = 0, 0, 0

    async def alone(conn: Connection, place: str | None) -> RollUp:
        nonlocal at_it, most, done
        at_it, done = at_it + 1, done + 1
        most = max(most, at_it)
        await asyncio.sleep(0.01)
        at_it -= 1
        return RollUp(0, "")

    replacing(monkeypatch, alone)
    processes = [make(holder=str(number)) for number in range(4)]
    for _ in range(5):
        reports = await asyncio.gather(*(process.look() for process in processes))
        assert [task for report in reports for task in report.done].count("minutes") == 1
        make_due(conn)
    assert (most, done) == (1, 5)


async def test_what_somebody_is_at_is_left_out_and_said(make: Make, pool: Pool) -> None:
    await pool.transaction(
        lambda conn: upkeep.take(conn, "nonces", holder="worker 7", every_seconds=300, hold_seconds=120)
    )
    maintenance = make()
    assert "nonces" not in (await maintenance.look()).done
    report = await maintenance.do(TASKS)
    assert report.held == {"nonces": "worker 7"}
    assert set(report.done) == set(TASKS) - {"nonces"}


async def test_a_dead_process_leaves_its_task_to_the_next(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    async def forever(conn: Connection, place: str | None) -> RollUp:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patch:
        replacing(patch, forever)
        dead = asyncio.create_task(make(holder="dead").look())
        await reached.wait()
        dead.cancel()
        await asyncio.wait([dead])
    assert "minutes" not in (await make().look()).done
    assert state(conn, "minutes", "holder").startswith("dead/")
    expire(conn)
    assert "minutes" in (await make().look()).done


async def test_whoever_was_overtaken_changes_neither_the_minutes_nor_the_record(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped after it had counted, and woke when another had counted more."""
    stopped, awake, real = asyncio.Event(), asyncio.Event(), minutes.roll_up

    async def stopping(conn: Connection, place: str | None) -> RollUp:
        if stopped.is_set():
            return await real(conn, place)
        stopped.set()
        await awake.wait()
        await conn.execute(
            "INSERT INTO wp_novel_ingest_minutes (minute, job_type, source) VALUES ('2026-01-01', 'late', 'late')"
        )
        return RollUp(99, "late")

    replacing(monkeypatch, stopping)
    late = asyncio.create_task(make(holder="late").look())
    await stopped.wait()
    expire(conn)
    assert "minutes" in (await make(holder="next").look()).done
    before = conn.fetch_all("SELECT * FROM wp_novel_upkeep WHERE task = 'minutes'")
    awake.set()
    report = await late
    assert "somebody else has taken it over" in report.failed["minutes"]
    assert conn.fetch_all("SELECT * FROM wp_novel_upkeep WHERE task = 'minutes'") == before
    assert conn.fetch_all("SELECT source FROM wp_novel_ingest_minutes") == []


# -- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [errors.DatabaseUnavailable("away"), errors.CommitUncertain("lost"), errors.ServerRefused(1146, "no such table")],
    ids=lambda error: type(error).__name__,
)
async def test_a_task_that_fails_is_told_and_tried_again_later_and_the_others_are_done(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await assert_only_minutes_fail(make(), conn, monkeypatch, error)


async def test_a_mistake_in_one_task_ends_neither_the_others_nor_the_worker(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await assert_only_minutes_fail(make(), conn, monkeypatch, TypeError("of None"))


async def assert_only_minutes_fail(
    maintenance: Maintenance, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await maintenance.look()
    make_due(conn)
    finished_at, place = state(conn, "minutes", "finished_at"), state(conn, "minutes", "place")
    before = counted("novel_upkeep_failures_total", task="minutes")

    async def failing(conn: Connection, place: str | None) -> RollUp:
        raise error

    with monkeypatch.context() as patch:
        replacing(patch, failing)
        with capture_logs() as logs:
            report = await maintenance.look()
    assert set(report.done) == set(TASKS) - {"minutes"}
    assert report.failed == {"minutes": f"{type(error).__name__}: {error}"}
    assert [log["task"] for log in logs if log["event"] == "upkeep.failed"] == ["minutes"]
    assert counted("novel_upkeep_failures_total", task="minutes") == before + 1
    assert (state(conn, "minutes", "finished_at"), state(conn, "minutes", "place")) == (finished_at, place)
    assert state(conn, "minutes", "holder") is None
    assert (await maintenance.look()).done == {}  # it does not run hot
    make_due(conn)
    assert "minutes" in (await maintenance.look()).done


async def test_a_database_that_is_away_holds_no_task_for_long(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the end of the turn can be written: it ends by itself."""
    real = upkeep.give_back

    async def away(*arguments: object) -> RollUp:
        raise errors.DatabaseUnavailable("away")

    with monkeypatch.context() as patch:
        replacing(patch, away)
        patch.setattr(upkeep, "give_back", away)
        assert set((await make().look()).failed) == {"minutes"}
    assert upkeep.give_back is real
    assert state(conn, "minutes", "held_until > UTC_TIMESTAMP(6)") == 1
    expire(conn)
    assert "minutes" in (await make().look()).done


# -- purges ---------------------------------------------------------------------------------------------


async def test_a_purge_that_is_not_through_goes_on_at_once_where_it_stopped(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE_ROWS", 3)
    monkeypatch.setattr(upkeeping, "TURN_SECONDS", -1.0)  # over as soon as it has begun
    conn.execute(_OLD_NONCES)
    left = []
    for holder in ("1", "2", "3", "4"):
        report = await make(holder=holder).look()
        left.append(nonces(conn))
        assert report.done["nonces"].goes_on == (left[-1] > 0)
        assert (state(conn, "nonces", "lag_seconds") >= 3600) == (left[-1] > 0)
    assert left == [7, 4, 1, 0]
    assert (await make().look()).done == {}


async def test_a_purge_in_one_turn_takes_all_of_its_pieces_and_records_them(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE_ROWS", 3)
    conn.execute(_OLD_NONCES)
    before = counted("novel_upkeep_rows_total", task="nonces")
    assert (await make().look()).done["nonces"] == Result(10)
    assert (nonces(conn), state(conn, "nonces", "changed_rows"), state(conn, "nonces", "lag_seconds")) == (0, 10, 0)
    assert counted("novel_upkeep_rows_total", task="nonces") == before + 10


async def test_a_stop_ends_a_purge_after_its_piece_and_begins_nothing_new(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE_ROWS", 3)
    conn.execute(_OLD_NONCES)
    maintenance = make(is_stopping=lambda: nonces(conn) < 10)
    report = await maintenance.look()
    assert nonces(conn) == 7
    assert list(report.done) == list(TASKS[: TASKS.index("nonces") + 1])
    assert (await make().look()).done["nonces"].rows == 7


async def test_a_sweep_of_the_history_goes_on_at_its_place(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE_ROWS", 3)
    conn.execute(
        "INSERT INTO wp_novel_reading_history (user_id, story_id, chapter_id, read_at)"
        " SELECT seq, 1, seq, IF(seq MOD 2, '2020-01-01', UTC_TIMESTAMP()) FROM seq_1_to_10"
    )
    with monkeypatch.context() as patch:
        patch.setattr(upkeeping, "TURN_SECONDS", -1.0)
        assert (await make().look()).done["history"].rows == 2
        place = state(conn, "history", "place")
        assert place == str(conn.fetch_all("SELECT id FROM wp_novel_reading_history WHERE user_id = 2")[0][0] + 1)
    assert (await make().look()).done["history"].rows == 3
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_reading_history") == [(5,)]
    assert state(conn, "history", "place") is None


async def test_the_report_of_a_task_done_in_several_turns_has_all_of_its_rows() -> None:
    report = Report(done={"a": Result(3, "x", again_seconds=0.0), "b": Result(1)}, failed={"c": "why"})
    report.add(Report(done={"a": Result(4)}, held={"d": "who"}))
    assert report == Report(done={"a": Result(7), "b": Result(1)}, failed={"c": "why"}, held={"d": "who"})


# -- chapters that wait for their story -----------------------------------------------------------------


def waiting(conn: PlainConnection) -> list[tuple[str, str | None, int]]:
    rows = conn.fetch_all(
        "SELECT source, waiting_for, next_run_at <= UTC_TIMESTAMP(6) FROM wp_novel_ingest_ready ORDER BY id"
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def test_chapters_whose_story_came_while_nobody_said_so_become_due(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeeping, "STORIES_AT_ONCE", 2)
    refs = []
    for _ in range(5):
        story_id = make_story(conn)
        refs += [conn.fetch_all("SELECT source_story_id FROM wp_novel_stories WHERE id = %s", (story_id,))[0][0]]
    came = sorted(refs)
    for ref in (*came, came[0], "not there"):
        conn.execute(_WAITING_UNIT, ("truyen-a", ref))
    conn.execute(_WAITING_UNIT, ("another", came[0]))
    assert (await make().look()).done["waiting_chapters"].rows == 6
    assert waiting(conn) == [
        *([("truyen-a", None, 1)] * 6),
        ("truyen-a", "not there", 0),
        ("another", came[0], 0),
    ]
    make_due(conn)
    assert (await make().look()).done["waiting_chapters"].rows == 0


async def test_a_unit_that_waits_for_no_story_keeps_its_time(make: Make, conn: PlainConnection) -> None:
    make_story(conn)
    conn.execute(_WAITING_UNIT, ("truyen-a", None))
    assert (await make().look()).done["waiting_chapters"].rows == 0
    assert waiting(conn) == [("truyen-a", None, 0)]


# -- minutes --------------------------------------------------------------------------------------------


async def test_the_minutes_are_counted_on_from_where_the_last_turn_ended(
    make: Make, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str | None] = []
    real = minutes.roll_up

    async def noting(conn: Connection, place: str | None) -> RollUp:
        places.append(place)
        return await real(conn, place)

    replacing(monkeypatch, noting)
    for _ in range(2):
        await make().look()
        make_due(conn)
    assert places[0] is None
    assert places[1] is not None
    assert datetime.fromisoformat(places[1]).second == 0
