"""`novel maintenance`: everything is done now, once, and what could not be done is said."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cli import maintenance as command
from runtime import ports
from runtime.addresses import parse_redis
from runtime.problems import Problem
from runtime.settings import Settings
from schema.connection import Connection
from store import errors
from tests.conftest import NovelCommand
from worker.maintenance import Maintenance, Report

Maintain = Callable[[], Result]

NONCES = 2500
EVERY_TASK = {"jobs", "requests", "payloads", "minutes", "waiting_chapters", "view_counters"}


@pytest.fixture
def maintain(test_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Maintain:
    """Runs the command in this process."""
    monkeypatch.setattr(command, "load_settings", lambda: test_settings)
    return lambda: CliRunner().invoke(command.maintenance, [], standalone_mode=False)


def add_expired_nonces(conn: Connection, count: int) -> None:
    conn.execute(
        "INSERT INTO wp_novel_nonce_replay (nonce_hash, key_id, expires_at)"
        " SELECT UNHEX(SHA2(seq, 256)), 'key', '2026-01-01' FROM seq_1_to_%s",
        (count,),
    )


def add_dead_worker_with_a_unit(conn: Connection) -> None:
    conn.execute(
        "INSERT INTO wp_novel_ingest_leases (id, job_type, source, request_id, payload_blob_id, first_item, last_item,"
        " items, created_at, claimed_at, next_run_at, worker_id) VALUES"
        " (1, 'chapters_bulk', 'a', 'r', 1, 0, 0, 1, NOW(6), NOW(6), NOW(6), 4711)"
    )


def journal(conn: Connection) -> list[dict[str, Any]]:
    rows = conn.fetch_all("SELECT context_json FROM wp_novel_sync_logs WHERE event_type = 'maintenance.run'")
    return [json.loads(context) for (context,) in rows]


def rows_said(result: Result) -> dict[str, str]:
    lines = [line.split() for line in result.stdout.splitlines()]
    return {line[0]: line[1] for line in lines if len(line) >= 4 and line[1].replace(",", "").isdigit()}


@contextmanager
def refused_deletes(conn: Connection) -> Iterator[None]:
    """While the block runs, the database refuses to delete nonces."""
    conn.execute_as_is(
        "CREATE TRIGGER novel_test_refused BEFORE DELETE ON wp_novel_nonce_replay FOR EACH ROW"
        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'"
    )
    try:
        yield
    finally:
        conn.execute_as_is("DROP TRIGGER novel_test_refused")


def test_every_task_is_done_whether_it_is_due_or_not(conn: Connection, maintain: Maintain) -> None:
    for _ in range(2):
        done = maintain()
        assert done.exception is None, done.output
        assert rows_said(done).keys() >= EVERY_TASK
    finished = conn.fetch_all("SELECT COUNT(*), COUNT(finished_at), COUNT(holder) FROM wp_novel_upkeep")
    assert finished == [(len(rows_said(done)), len(rows_said(done)), 0)]


def test_it_goes_on_until_everything_is_done(
    conn: Connection, maintain: Maintain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what takes several turns: here each turn is over after its first piece."""
    monkeypatch.setattr("worker.maintenance.TURN_SECONDS", 0.0)
    add_expired_nonces(conn, NONCES)
    done = maintain()
    assert rows_said(done)["nonces"] == f"{NONCES:,}"
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_nonce_replay") == [(0,)]
    [entry] = journal(conn)
    assert (entry["rows"]["nonces"], entry["failed"], entry["rescued_units"]) == (NONCES, {}, 0)


def test_what_a_gone_worker_held_is_brought_back_and_said(conn: Connection, maintain: Maintain) -> None:
    add_dead_worker_with_a_unit(conn)
    done = maintain()
    assert "Brought back 1 unit that dead workers held." in done.stdout.splitlines()
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_leases") == [(0,)]
    assert journal(conn)[0]["rescued_units"] == 1


def test_a_task_that_somebody_is_at_is_left_to_them(conn: Connection, maintain: Maintain) -> None:
    conn.execute(
        "INSERT INTO wp_novel_upkeep (task, holder, held_until, next_run_at)"
        " VALUES ('jobs', '17/abcdef', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, UTC_TIMESTAMP(6))"
    )
    done = maintain()
    assert done.exception is None
    assert "jobs was left out: 17 is at it." in done.stdout.splitlines()
    assert "jobs" not in rows_said(done)
    assert conn.fetch_all("SELECT holder FROM wp_novel_upkeep WHERE task = 'jobs'") == [("17/abcdef",)]


def test_a_task_that_fails_is_said_the_others_are_done_and_the_exit_code_is_1(
    conn: Connection, maintain: Maintain
) -> None:
    add_expired_nonces(conn, 3)
    with refused_deletes(conn):
        done = maintain()
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1
    (line,) = [line for line in done.stdout.splitlines() if " failed: " in line]
    assert line.startswith("nonces failed: ")
    assert "not today" in line
    assert rows_said(done).keys() >= EVERY_TASK
    [entry] = journal(conn)
    assert entry["failed"].keys() == {"nonces"}


@pytest.mark.parametrize("error", [errors.DatabaseUnavailable("gone"), errors.ServerRefused(1142, "denied")])
def test_a_database_that_refuses_is_a_problem_and_no_traceback(
    conn: Connection, maintain: Maintain, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(Maintenance, "do", refused)
    done = maintain()
    assert isinstance(done.exception, Problem)
    assert str(done.exception) == f"maintenance could not be done: {error}. Try again."
    assert journal(conn) == []


def test_ctrl_c_ends_it_between_two_tasks_and_what_was_done_is_said(
    conn: Connection, maintain: Maintain, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = Maintenance._carry_out

    async def interrupted(self: Maintenance, task: Any, turn: Any, report: Report) -> None:
        signal.raise_signal(signal.SIGINT)
        await carry_out(self, task, turn, report)

    monkeypatch.setattr(Maintenance, "_carry_out", interrupted)
    done = maintain()
    assert isinstance(done.exception, click.Abort)
    assert len(rows_said(done)) == 1
    assert conn.fetch_all("SELECT COUNT(holder) FROM wp_novel_upkeep") == [(0,)]
    assert len(journal(conn)[0]["rows"]) == 1


def test_without_redis_everything_is_done(
    maintain: Maintain, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = parse_redis(f"redis://127.0.0.1:{ports.find()}/0")
    away = replace(test_settings, redis=replace(test_settings.redis, address=address))
    monkeypatch.setattr(command, "load_settings", lambda: away)
    done = maintain()
    assert rows_said(done).keys() >= EVERY_TASK - {"view_counters"}


def test_a_server_that_hangs_up_on_who_is_idle_does_not_spoil_the_journal(
    conn: Connection, maintain: Maintain, monkeypatch: pytest.MonkeyPatch
) -> None:
    maintained = command._maintain

    async def cut_off_meanwhile(*args: Any) -> Any:
        done = await maintained(*args)
        ours = conn.raw.thread_id()
        others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> %s"
        for (number,) in conn.fetch_all(others, (ours,)):
            conn.execute("KILL %s", (number,))
        return done

    monkeypatch.setattr(command, "_maintain", cut_off_meanwhile)
    assert maintain().exception is None
    assert len(journal(conn)) == 1


def test_from_the_shell_it_ends_well_and_a_missing_database_is_one_line(
    novel: NovelCommand, environ: dict[str, str]
) -> None:
    done = novel("maintenance", **environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("TASK ")
    url = f"mysql://u:hush@127.0.0.1:{ports.find()}/novel"
    done = novel("maintenance", **environ | {"NOVEL_DATABASE_URL": url})
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
