"""`novel recount-worker` as a process: it drains the queue, takes over from who was killed, and stops when told."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schema.connection import Connection
from tests.conftest import NovelCommand, clean_environ, novel_executable
from tests.processes import kill, wait_for
from tests.store.counted_stories import make_stories, queued

_TOUCH = """
    INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, updated_at)
    SELECT id, UTC_TIMESTAMP(), UTC_TIMESTAMP() + INTERVAL %s SECOND, UTC_TIMESTAMP() FROM wp_novel_stories
    WHERE id BETWEEN %s AND %s
"""
_CLAIMED = "SELECT COUNT(*) FROM wp_novel_story_recount_queue WHERE locked_at IS NOT NULL"
_UNCOUNTED = "SELECT COUNT(*) FROM wp_novel_stories WHERE chapter_count <> 1"


def touch(conn: Connection, story_ids: list[int], *, due_in_seconds: int = 0) -> None:
    conn.execute(_TOUCH, (due_in_seconds, story_ids[0], story_ids[-1]))


def number(conn: Connection, sql: str) -> int:
    return int(conn.fetch_all(sql)[0][0])


@contextmanager
def working(environ: dict[str, str], output: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with output.open("wb") as out:
        process = subprocess.Popen(
            [str(novel_executable()), "recount-worker", "stories"],
            env=clean_environ(environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        kill([process.pid])
        process.wait()


def test_a_drain_counts_everything_that_is_due_and_ends_well(
    novel: NovelCommand, environ: dict[str, str], conn: Connection
) -> None:
    due, later = make_stories(conn, 250), make_stories(conn, 3)
    touch(conn, due)
    touch(conn, later, due_in_seconds=3600)
    ended = novel("recount-worker", "stories", "--drain", "--limit", "100", **environ)
    assert ended.returncode == 0, ended.stderr
    assert sorted(queued(conn)) == later
    assert number(conn, _UNCOUNTED) == len(later)
    assert number(conn, "SELECT COUNT(*) FROM wp_novel_workers") == 0


def test_a_drain_by_several_processes_counts_everything_once(
    novel: NovelCommand, environ: dict[str, str], conn: Connection
) -> None:
    touch(conn, make_stories(conn, 200))
    ended = novel("recount-worker", "stories", "--drain", "--concurrency", "3", "--limit", "20", **environ)
    assert ended.returncode == 0, ended.stderr
    assert queued(conn) == {}
    versions = conn.fetch_all("SELECT chapter_count, cache_version, COUNT(*) FROM wp_novel_stories GROUP BY 1, 2")
    assert versions == [(1, 1, 200)]


def test_what_a_killed_worker_had_claimed_is_taken_over_at_once(
    novel: NovelCommand, environ: dict[str, str], conn: Connection, tmp_path: Path
) -> None:
    story_ids = make_stories(conn, 20)
    touch(conn, story_ids)
    with working(environ, tmp_path / "out") as worker:
        conn.execute("LOCK TABLES wp_novel_chapters WRITE")
        try:
            wait_for(lambda: is_waiting(conn), seconds=60)
            worker.kill()
            worker.wait()
        finally:
            conn.execute("UNLOCK TABLES")
    assert number(conn, _CLAIMED) == len(story_ids)
    ended = novel("recount-worker", "stories", "--drain", **environ)
    assert ended.returncode == 0, ended.stderr
    assert (queued(conn), number(conn, _UNCOUNTED)) == ({}, 0)


def is_waiting(conn: Connection) -> bool:
    """Whether a worker waits for the chapters that we keep from it."""
    rows = conn.fetch_all("SHOW PROCESSLIST")
    return any("metadata lock" in str(row[6]) and "COUNT(c.id)" in str(row[7]) for row in rows)


def test_a_worker_that_is_told_to_stop_signs_off_and_ends_well(
    environ: dict[str, str], conn: Connection, tmp_path: Path
) -> None:
    touch(conn, make_stories(conn, 20))
    with working(environ, tmp_path / "out") as worker:
        wait_for(lambda: not queued(conn), seconds=60)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0, (tmp_path / "out").read_text()
    assert number(conn, "SELECT COUNT(*) FROM wp_novel_workers") == 0
    assert number(conn, _UNCOUNTED) == 0
