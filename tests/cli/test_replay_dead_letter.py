"""`novel replay-dead-letter`: what may be asked for, what it says, and that it does what it says."""

import json
import signal
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pymysql
import pytest
from click.testing import CliRunner, Result

from cli import queue
from runtime import ports
from runtime.problems import Problem
from runtime.settings import Settings
from runtime.shutdown import Stop
from schema.connection import Connection
from store import replays
from store.pool import Pool
from tests.conftest import NovelCommand, clean_environ, novel_executable
from tests.processes import wait_for
from tests.store.queued import (
    LATER,
    assert_consistent,
    chapter,
    end,
    lose_payload,
    make_batch,
    make_dead,
    request_state,
    states,
    story,
    waiting_items,
    work_off,
)

Replay = Callable[..., Result]

FRAMES = [chapter(number) for number in range(4)]


@pytest.fixture
def replay(test_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Replay:
    """Runs the command in this process."""
    monkeypatch.setattr(queue, "load_settings", lambda: test_settings)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(queue.replay_dead_letter, arguments, standalone_mode=False)

    return run


def said(result: Result) -> list[str]:
    assert result.exception is None, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def told(result: Result) -> dict[str, Any]:
    assert result.exception is None, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def journal(conn: Connection) -> list[dict[str, Any]]:
    rows = conn.fetch_all(
        "SELECT context_json FROM wp_novel_sync_logs WHERE event_type = 'replay.dead_letter' ORDER BY id"
    )
    return [json.loads(context) for (context,) in rows]


# -- what may be typed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--since", "soon"], "'soon' is no time"),
        (["--since", "2999-01-01"], "2999-01-01T00:00:00Z is in the future."),
        (["--source", "a/b"], "'a/b' must have 1 to 40 characters"),
        (["--job-type", "users"], "'users' is not one of 'stories', 'chapters'"),
        (["--error-code", "x" * 41], "is no error code: it has 1 to 40 characters"),
        (["--request-id", ""], "'' is no request id: it has 1 to 36 characters"),
        (["--limit", "0"], "0 is not in the range x>=1"),
        (["--rate", "0"], "'0' is no rate"),
    ],
)
async def test_a_mistake_is_named_and_nothing_is_done(
    replay: Replay, pool: Pool, conn: Connection, arguments: list[str], complaint: str
) -> None:
    batch = await make_dead(pool, conn)
    result = replay(*arguments)
    assert isinstance(result.exception, click.UsageError)
    assert complaint in result.exception.format_message()
    assert states(conn, batch) == ["dead_letter"]


# -- what it does ---------------------------------------------------------------------------------------


async def test_each_filter_queues_only_what_matches_it(replay: Replay, pool: Pool, conn: Connection) -> None:
    old = await make_dead(pool, conn, ago_seconds=7200)
    other_source = await make_dead(pool, conn, source="b")
    stories = await make_dead(pool, conn, [story()])
    coded = await make_batch(pool, FRAMES[:2])
    end(conn, coded, dead={0}, failed={1}, code="slug_conflict")
    for arguments, batch in [
        (["--request-id", old.request_id], old),
        (["--source", "b"], other_source),
        (["--job-type", "stories"], stories),
        (["--error-code", "slug_conflict", "--since", "-1 hours"], coded),
    ]:
        before = waiting_items(conn)
        assert told(replay(*arguments, "--json"))["queued"] == len(batch.job_ids)
        assert set(states(conn, batch)) == {"queued"}
        assert waiting_items(conn) == before + len(batch.job_ids)
    assert_consistent(conn)


async def test_since_leaves_out_what_died_before(replay: Replay, pool: Pool, conn: Connection) -> None:
    old, new = await make_dead(pool, conn, ago_seconds=7200), await make_dead(pool, conn, ago_seconds=60)
    assert told(replay("--since", "-1 hours", "--json"))["queued"] == 1
    assert (states(conn, old), states(conn, new)) == (["dead_letter"], ["queued"])
    [filters] = [row["filters"] for row in journal(conn)]
    assert filters["since"].endswith("Z")


async def test_a_limit_queues_those_that_died_first(replay: Replay, pool: Pool, conn: Connection) -> None:
    new, old = await make_dead(pool, conn), await make_dead(pool, conn, ago_seconds=60)
    assert said(replay("--limit", "1"))[0] == "1 item queued again. See how they get on with: novel queue status"
    assert (states(conn, old), states(conn, new)) == (["queued"], ["dead_letter"])


async def test_a_dry_run_counts_by_cause_and_changes_nothing(replay: Replay, pool: Pool, conn: Connection) -> None:
    batch = await make_batch(pool, FRAMES)
    end(conn, batch, dead={0, 1, 2}, failed={3}, code="apply_failed")
    gone = await make_dead(pool, conn, [story()], code=None)
    lose_payload(conn, gone)

    def everything() -> list[Any]:
        tables = ("jobs", "requests", "ready", "leases", "payload_blobs")
        rows: list[Any] = [conn.fetch_all(f"SELECT * FROM wp_novel_ingest_{table} ORDER BY id") for table in tables]
        return [*rows, journal(conn)]

    before = everything()
    lines = said(replay("--dry-run"))
    assert lines[0] == "ERROR CODE SOURCE JOB TYPE STATE CAN BE QUEUED PAYLOAD GONE"
    assert lines[1:3] == ["none truyen-a stories dead letter 0 1", "apply_failed truyen-a chapters dead letter 3 0"]
    assert "3 items can be queued again. Nothing was changed." in lines
    assert lines[-1] == f"stories truyen-a ref-0 (request {gone.request_id})"
    plan = told(replay("--dry-run", "--error-code", "apply_failed", "--json"))
    assert plan == {
        "dry_run": True,
        "filters": dict.fromkeys(("job_type", "since", "source", "request_id")) | {"error_code": "apply_failed"},
        "matched": 4,
        "can_be_queued": 4,
        "payload_gone": 0,
        "payload_gone_items": [],
        "groups": [
            {
                "job_type": "chapters_bulk",
                "source": "truyen-a",
                "status": status,
                "error_code": "apply_failed",
                "can_be_queued": count,
                "payload_gone": 0,
            }
            for status, count in [("dead_letter", 3), ("failed", 1)]
        ],
    }
    assert everything() == before


async def test_a_dry_run_promises_what_the_run_then_does(replay: Replay, pool: Pool, conn: Connection) -> None:
    lose_payload(conn, await make_dead(pool, conn))
    await make_dead(pool, conn, FRAMES)
    plan = told(replay("--dry-run", "--json"))
    done = told(replay("--json"))
    assert (done["queued"], done["payload_gone"]) == (plan["can_be_queued"], plan["payload_gone"]) == (4, 1)
    assert done["filters"] == plan["filters"]
    assert done["payload_gone_items"] == plan["payload_gone_items"] != []
    assert (done["dry_run"], done["matched"], done["units"], done["taken"]) == (False, 5, 1, 0)
    assert done["stopped"] is False
    [row] = journal(conn)
    assert (row["queued"], row["state"]) == (4, "finished")
    assert row["operator"]


async def test_a_payload_that_is_gone_is_said_with_what_to_push_again(
    replay: Replay, pool: Pool, conn: Connection
) -> None:
    gone = await make_dead(pool, conn, [chapter(number) for number in range(12)])
    lose_payload(conn, gone)
    lines = said(replay())
    assert lines[0] == "0 items queued again. See how they get on with: novel queue status"
    assert lines[1] == (
        "12 items cannot be queued again: the payload is gone (it is kept for 30 days). Push again from the crawler:"
    )
    assert lines[2] == f"chapters truyen-a ref-0 (request {gone.request_id})"
    assert len(lines) == 13
    assert lines[-1] == "and 2 more; --json lists up to 100."
    assert set(states(conn, gone)) == {"dead_letter"}


async def test_where_nothing_matches_it_says_so_and_shows_no_progress(
    replay: Replay, pool: Pool, conn: Connection
) -> None:
    for options in ([], ["--dry-run"]):
        assert said(replay(*options)) == ["Nothing matches: there are no dead letters."]
    await make_dead(pool, conn)
    result = replay("--error-code", "typo", "--source", "b")
    assert said(result) == ["Nothing matches --source, --error-code."]
    assert result.stderr == ""


async def test_what_others_took_meanwhile_is_said(
    replay: Replay, pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await make_dead(pool, conn, FRAMES)
    begin = replays.begin

    def purged_meanwhile(*args: Any, **more: Any) -> Any:
        conn.execute("DELETE FROM wp_novel_ingest_jobs WHERE id = %s", (batch.job_ids[0],))
        return begin(*args, **more)

    monkeypatch.setattr(replays, "begin", purged_meanwhile)
    assert said(replay()) == [
        "3 items queued again. See how they get on with: novel queue status",
        "1 item left out: somebody else queued or purged them meanwhile, or holds them.",
    ]


async def test_nothing_newer_is_overwritten_by_an_older_item(
    replay: Replay, pool: Pool, conn: Connection, test_settings: Settings
) -> None:
    old_story = await make_dead(pool, conn, [story(title="older")])
    old_chapter = await make_dead(pool, conn, [chapter(title="older", text="Cũ.")])
    await make_batch(pool, [story(title="newer", updated_at_source=LATER)])
    await work_off(pool, test_settings, "stories")
    await make_batch(pool, [chapter(title="newer", text="Mới.", updated_at_source=LATER)])
    await work_off(pool, test_settings, "chapters")
    stored = (
        "SELECT s.title, s.updated_at_source, c.title, c.updated_at_source, b.content_hash FROM wp_novel_stories s"
        " JOIN wp_novel_chapters c ON c.story_id = s.id JOIN wp_novel_chapter_content b ON b.chapter_id = c.id"
    )
    before = conn.fetch_all(stored)
    assert [(row[0], row[2]) for row in before] == [("newer", "newer")]
    assert told(replay("--json"))["queued"] == 2
    for kind in ("stories", "chapters"):
        assert await work_off(pool, test_settings, kind) == 1
    assert conn.fetch_all(stored) == before
    for batch in (old_story, old_chapter):
        assert request_state(conn, batch) == ("completed", 1, 0)
    stale = "SELECT COUNT(*) FROM wp_novel_ingest_jobs WHERE is_stale = 1 AND status = 2"
    assert conn.fetch_all(stale) == [(2,)]


# -- how fast, and how it ends --------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 3.0, 7.5, 100.0])
async def test_no_more_than_the_rate_is_queued(
    replay: Replay, pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    await make_dead(pool, conn, [chapter(number) for number in range(20)])
    seconds = 0.0
    queued: list[tuple[float, int]] = []

    class Waiting(Stop):
        def wait(self, for_seconds: float | None = None) -> bool:
            nonlocal seconds
            seconds += for_seconds or 0.0
            queued.append((seconds, waiting_items(conn)))
            return False

    monkeypatch.setattr(queue, "Stop", Waiting)
    monkeypatch.setattr(queue, "time", SimpleNamespace(monotonic=lambda: seconds))
    assert told(replay("--rate", str(rate), "--json"))["queued"] == 20
    assert all(count <= rate * at + 1e-6 for at, count in queued)
    assert seconds >= (20 - queue.piece_jobs(rate)) / rate - 1e-6


async def test_a_stop_after_the_last_piece_is_no_interruption(
    replay: Replay, pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_dead(pool, conn, FRAMES)
    whole = replays.queue

    def stopped_during(*args: Any, **more: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return whole(*args, **more)

    monkeypatch.setattr(replays, "queue", stopped_during)
    done = told(replay("--json"))
    assert (done["queued"], done["stopped"]) == (4, False)
    assert journal(conn)[0]["state"] == "finished"


async def test_a_database_that_fails_on_the_way_leaves_what_is_done_and_says_how_much(
    replay: Replay, pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await make_dead(pool, conn, FRAMES)
    whole, pieces = replays.queue, 0

    def failing(*args: Any, **more: Any) -> Any:
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            raise pymysql.err.OperationalError(2013, "gone")
        return whole(*args, **more)

    monkeypatch.setattr(replays, "queue", failing)
    monkeypatch.setattr(replays, "PIECE_JOBS", 1)
    result = replay()
    assert isinstance(result.exception, Problem)
    assert "2 items queued again before this. The same command goes on with the rest." in result.stderr
    assert states(conn, batch) == ["queued", "queued", "dead_letter", "dead_letter"]
    monkeypatch.setattr(replays, "queue", whole)
    assert told(replay("--json"))["queued"] == 2
    assert_consistent(conn)


async def test_ctrl_c_stops_between_two_pieces_and_the_same_command_goes_on(
    pool: Pool, conn: Connection, environ: dict[str, str], novel: NovelCommand
) -> None:
    batch = await make_dead(pool, conn, [chapter(number) for number in range(30)])
    running = subprocess.Popen(
        [novel_executable(), "replay-dead-letter", "--rate", "5"],
        env=clean_environ(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: waiting_items(conn))
        running.send_signal(signal.SIGINT)
        output, complaint = running.communicate(timeout=60)
    finally:
        running.kill()
    queued = waiting_items(conn)
    assert (running.returncode, complaint.splitlines()[-1]) == (130, "novel: stopped.")
    assert output.splitlines() == [
        f"{queued} items queued again. See how they get on with: novel queue status",
        f"{30 - queued} items not reached. The same command goes on with them.",
    ]
    assert queued % 5 == 0
    assert [(row["queued"], row["state"]) for row in journal(conn)] == [(queued, "stopped")]
    assert_consistent(conn)
    done = novel("replay-dead-letter", "--json", **environ)
    assert (done.returncode, json.loads(done.stdout)["queued"]) == (0, 30 - queued)
    assert set(states(conn, batch)) == {"queued"}
    assert_consistent(conn)


def test_a_database_that_is_not_there_is_one_line(novel: NovelCommand, environ: dict[str, str]) -> None:
    url = f"mysql://u:hush@127.0.0.1:{ports.find()}/novel"
    done = novel("replay-dead-letter", **environ | {"NOVEL_DATABASE_URL": url})
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("novel: no database server answers at ")
