"""`novel queue status`: exit codes and errors, and the way of a poison item from its death to its success."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli import queue
from runtime import ports
from runtime.settings import Settings
from schema.connection import Connection
from store.pool import Pool
from tests.conftest import DatabaseFactory, NovelCommand
from tests.store.queued import chapter, make_batch, make_dead, request_state, states, story, work_off

Status = Callable[..., Result]


@pytest.fixture
def status(test_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Status:
    """Runs the command in this process."""
    monkeypatch.setattr(queue, "load_settings", lambda: test_settings)
    return lambda *arguments: CliRunner().invoke(queue.status, arguments, standalone_mode=False)


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def told(done: Any) -> dict[str, Any]:
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_a_fresh_installation_is_well(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("queue", "status", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The queue is empty: nothing waits, and nothing is being processed.\nKeeps up?  yes:")


async def test_a_queue_in_trouble_is_told_and_is_no_failure_of_the_command(
    pool: Pool, conn: Connection, status: Status
) -> None:
    await make_batch(pool, [chapter()])
    conn.execute("UPDATE wp_novel_ingest_ready SET next_run_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR")
    await make_dead(pool, conn, [story()])
    done = status()
    assert done.exit_code == 0
    said = lines(done.stdout)
    assert re.fullmatch(
        r"Keeps up\? no: what is due has waited for up to 1 h 0 min; more than 5 min 0 s is too long", said[0]
    )
    assert said[1] == (
        "Stuck? 1 item of chapters due, and no worker for that is running: start one with novel ingest-worker chapters"
    )
    assert said[2] == "Failed? dead letters: 1, failed: 0"
    assert said[3].endswith("novel replay-dead-letter --dry-run")
    found = told(status("--json"))
    assert (found["keeps_up"], len(found["stuck"]), found["dead_letter_items"]) == (False, 1, 1)
    assert found["failures"][0]["error_code"] == "apply_failed"


async def test_looking_changes_nothing(pool: Pool, conn: Connection, status: Status) -> None:
    await make_batch(pool, [chapter()])
    await make_dead(pool, conn, [story()])
    tables = [row[0] for row in conn.fetch_all("SHOW TABLES LIKE 'wp\\_novel\\_%'")]
    before = conn.fetch_all(f"CHECKSUM TABLE {', '.join(tables)}")
    assert status().exit_code == status("--json").exit_code == 0
    assert conn.fetch_all(f"CHECKSUM TABLE {', '.join(tables)}") == before


async def test_a_worker_at_work_is_named_by_its_lease_as_it_is_set(
    pool: Pool, conn: Connection, status: Status, test_settings: Settings
) -> None:
    """Late is whoever is silent for half of the lease that the settings have."""
    silent = round(test_settings.worker.lease_seconds / 2) + 5
    conn.execute(
        "INSERT INTO wp_novel_workers (kind, host, boot_id, pid, started_at, heartbeat_at) VALUES"
        " ('stories', 'h/m', 'b', 7, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL %s SECOND)",
        (silent,),
    )
    found = told(status("--json"))
    assert found["workers"][0]["late"] is True
    assert "is silent for 1 min 5 s" in found["stuck"][0]


def test_a_database_that_is_not_there_is_one_line(novel: NovelCommand, environ: dict[str, str]) -> None:
    url = f"mysql://u:hush@127.0.0.1:{ports.find()}/novel"
    done = novel("queue", "status", "--json", **environ | {"NOVEL_DATABASE_URL": url})
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("novel: no database server answers at ")
    assert "hush" not in done.stderr


def test_a_database_without_our_tables_is_one_line_with_the_remedy(
    novel: NovelCommand, environ: dict[str, str], make_database: DatabaseFactory
) -> None:
    done = novel("queue", "status", **environ | {"NOVEL_DATABASE_URL": make_database().url})
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "novel migrate" in done.stderr


# -- the whole way --------------------------------------------------------------------------------------


@contextmanager
def poison(conn: Connection, slug: str) -> Iterator[None]:
    """While the block runs, the database refuses chapters of this slug."""
    conn.execute_as_is(
        "CREATE TRIGGER novel_test_poison BEFORE INSERT ON wp_novel_chapters FOR EACH ROW"
        f" BEGIN IF NEW.slug = '{slug}' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'poison'; END IF; END"
    )
    try:
        yield
    finally:
        conn.execute_as_is("DROP TRIGGER novel_test_poison")


async def test_a_poison_item_dies_is_seen_and_completes_when_it_is_queued_again(
    pool: Pool,
    conn: Connection,
    test_settings: Settings,
    environ: dict[str, str],
    novel: NovelCommand,
    status: Status,
) -> None:
    await make_batch(pool, [story()])
    await work_off(pool, test_settings, "stories")
    batch = await make_batch(pool, [chapter(1), chapter(2, slug="doc"), chapter(3)])
    worker = ("ingest-worker", "chapters", "--drain")
    at_once = environ | {"NOVEL_RETRY_SECONDS": "0"}

    with poison(conn, "doc"):
        assert novel(*worker, **at_once).returncode == 0
    assert states(conn, batch) == ["completed", "dead_letter", "completed"]
    assert request_state(conn, batch) == ("partially_failed", 2, 1)

    found = told(status("--json"))
    assert found["dead_letter_items"] == 1
    assert [group["error_code"] for group in found["failures"]] == ["apply_failed"]
    [(attempts, error)] = conn.fetch_all("SELECT attempts, last_error FROM wp_novel_ingest_jobs WHERE status = 4")
    assert attempts == 5
    assert "poison" in error

    asked = ("replay-dead-letter", "--error-code", "apply_failed", "--since", "-1 hours", "--json")
    assert told(novel(*asked, "--dry-run", **environ))["can_be_queued"] == 1
    assert states(conn, batch)[1] == "dead_letter"
    assert told(novel(*asked, **environ))["queued"] == 1
    assert request_state(conn, batch) == ("processing", 2, 0)

    assert novel(*worker, **at_once).returncode == 0
    assert request_state(conn, batch) == ("completed", 3, 0)
    after = told(status("--json"))
    assert (after["dead_letter_items"], after["waiting_items"], after["failures"]) == (0, 0, [])
    slugs = conn.fetch_all("SELECT slug FROM wp_novel_chapters ORDER BY chapter_no")
    assert slugs == [("chuong-1",), ("doc",), ("chuong-3",)]
