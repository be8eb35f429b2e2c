"""Worker processes that are killed, stopped and hung: nothing is lost, nothing is done twice, nobody waits for long."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from runtime.settings import Settings
from schema import connection
from schema.connection import Connection
from tests.conftest import clean_environ
from tests.processes import stopped, wait_for
from tests.worker.batches import DONE, Ended, add_stories, all_ended, chapter, count, ended, push, story, waiting
from tests.worker.processes import (
    CHAPTERS,
    QUICK,
    STORIES,
    is_held_up,
    joined,
    let_go,
    slow_chapters,
    working,
)

# As short as it may be.
SHORT_LEASE = {"NOVEL_LEASE_SECONDS": "1"}
HANGING = """
import time
from cli.main import main
from worker.chapters import Chapters

async def hang(self, pool, jobs):
    time.sleep(600)

Chapters.prepare = hang
main()
"""


@contextmanager
def bodies_locked(settings: Settings) -> Iterator[None]:
    """Workers wait when they have read a set and not yet begun to write it."""
    with connection.connect(settings.database) as other:
        other.execute("LOCK TABLES wp_novel_chapter_content WRITE")
        yield
        other.execute("UNLOCK TABLES")


def waits_for_bodies(conn: Connection) -> bool:
    return bool(
        conn.fetch_all(
            "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata lock'"
        )
    )


def written_once(conn: Connection, chapters: int) -> bool:
    """Each chapter is there, and was announced once."""
    events = conn.fetch_all("SELECT chapter_id, COUNT(*) FROM wp_novel_events GROUP BY chapter_id HAVING COUNT(*) > 1")
    return count(conn, "chapters") == count(conn, "events") == chapters and not events


def test_what_a_killed_worker_held_is_done_by_another_on_its_machine_long_before_the_lease_ends(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1, slug="slow"), chapter(2)])
    with slow_chapters(conn), working(tmp_path, environ, *CHAPTERS) as victim:
        wait_for(lambda: is_held_up(conn))
        with working(tmp_path, environ, *CHAPTERS) as other:
            victim.process.kill()
            victim.wait()
            let_go(conn)
            wait_for(lambda: all_ended(conn))
            assert list(joined(conn).values()) == [other.pid]
            assert other.stop() == 0
    assert ended(conn, request_id) == [DONE, DONE]
    assert written_once(conn, 2)


def test_a_worker_that_was_stopped_for_longer_than_its_lease_writes_nothing_and_works_on_under_a_new_id(
    tmp_path: Path, environ: dict[str, str], conn: Connection, test_settings: Settings
) -> None:
    add_stories(conn)
    first = push(conn, [chapter(1), chapter(2)])
    with ExitStack() as stack:
        with bodies_locked(test_settings):
            sleeper = stack.enter_context(working(tmp_path, environ | SHORT_LEASE, *CHAPTERS))
            wait_for(lambda: waits_for_bodies(conn))
            [before] = joined(conn)
            os.kill(sleeper.pid, signal.SIGSTOP)
        with working(tmp_path, environ | SHORT_LEASE, *CHAPTERS) as other:
            wait_for(lambda: all_ended(conn))
            assert before not in joined(conn)
            done = conn.fetch_all("SELECT id, status, attempts, updated_at FROM wp_novel_ingest_jobs ORDER BY id")
            os.kill(sleeper.pid, signal.SIGCONT)
            wait_for(lambda: sleeper.pid in joined(conn).values())
            sleeper.wait_until("worker.taken_for_dead")
            sleeper.wait_until("LeaseLost")
            assert (
                conn.fetch_all("SELECT id, status, attempts, updated_at FROM wp_novel_ingest_jobs ORDER BY id") == done
            )
            assert other.stop() == 0
        request_id = push(conn, [chapter(3)])
        wait_for(lambda: all_ended(conn))
        assert sleeper.stop() == 0
    assert ended(conn, request_id) == [DONE]
    assert ended(conn, first) == [DONE, DONE]
    assert written_once(conn, 3)
    assert joined(conn) == {}


def test_a_worker_whose_event_loop_hangs_is_taken_for_dead_however_alive_its_heart_is(
    tmp_path: Path, environ: dict[str, str], conn: Connection
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1)])
    with (tmp_path / "hanging.out").open("w") as output:
        hanging = subprocess.Popen(
            [sys.executable, "-P", "-c", HANGING, *CHAPTERS],
            env=clean_environ(QUICK | environ | SHORT_LEASE),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: count(conn, "ingest_leases") == 1)
        with working(tmp_path, environ | SHORT_LEASE, *CHAPTERS) as other:
            wait_for(lambda: all_ended(conn))
            assert hanging.poll() is None
            assert list(joined(conn).values()) == [other.pid]
            assert other.stop() == 0
    finally:
        hanging.kill()
        hanging.wait()
    assert ended(conn, request_id) == [DONE]
    assert written_once(conn, 1)


def test_a_short_pause_costs_a_worker_nothing(tmp_path: Path, environ: dict[str, str], conn: Connection) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1, slug="slow")])
    with slow_chapters(conn), working(tmp_path, environ, *CHAPTERS) as worker:
        wait_for(lambda: is_held_up(conn))
        before = joined(conn)
        with stopped(worker.pid):
            let_go(conn)
            wait_for(lambda: not is_held_up(conn))
        wait_for(lambda: all_ended(conn))
        assert joined(conn) == before
    assert ended(conn, request_id) == [DONE]


@pytest.fixture
def bell(redis_url: str) -> Iterator["redis.Redis"]:
    client = redis.Redis.from_url(redis_url)
    yield client
    client.close()


def test_an_idle_worker_hears_of_new_work_at_once_and_its_chapters_hear_of_their_story(
    tmp_path: Path, environ: dict[str, str], conn: Connection, bell: "redis.Redis"
) -> None:
    """Left alone, each of them would look again after half a minute at the earliest, and retry after an hour."""
    patient = environ | {"NOVEL_POLL_SECONDS": "60", "NOVEL_RETRY_SECONDS": "3600"}
    with working(tmp_path, patient, *CHAPTERS), working(tmp_path, patient, *STORIES):
        wait_for(lambda: bell.publish("novel:due:chapters_bulk", b"1") and bell.publish("novel:due:stories_bulk", b"1"))
        request_id = push(conn, [chapter(1)])
        wait_for(
            lambda: bell.publish("novel:due:chapters_bulk", b"1") and ended(conn, request_id)[0].attempts, seconds=20
        )
        assert len(waiting(conn)) == 1
        push(conn, [story(1)])
        assert bell.publish("novel:due:stories_bulk", b"1")
        wait_for(lambda: all_ended(conn), seconds=20)
    assert ended(conn, request_id) == [Ended("completed", 2)]
