"""Writing a catalogue into a database: once, exactly, and again after an interruption."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from loadtests.catalogue import filling, rows
from loadtests.catalogue.sizes import Sizes
from runtime import settings
from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, drift, migrator
from schema.connection import Connection
from tests.conftest import clean_environ
from tests.processes import wait_for

SMALL = Sizes(stories=30, chapters=120, bodies=5)
# Large enough to be interrupted between two of its commits.
LONG = Sizes(stories=4_000, chapters=4_000, bodies=0)


def ensure(conn: Connection, sizes: Sizes) -> bool:
    return filling.ensure(conn, sizes, lock_seconds=10)


def count(conn: Connection, table: str) -> int:
    ((number,),) = conn.fetch_all(f"SELECT COUNT(*) FROM {table}")
    return int(number)


def assert_holds(conn: Connection, sizes: Sizes) -> None:
    """The database holds exactly the rows of these sizes, no more and none of another."""
    stories = list(rows.stories(sizes))
    assert count(conn, "wp_novel_chapters") == sizes.chapters
    assert count(conn, "wp_novel_chapter_content") == sizes.bodies
    assert count(conn, "wp_novel_story_genres") == sum(len(story.genres) for story in stories)
    assert count(conn, "wp_novel_story_aliases") == sum(len(story.aliases) for story in stories)
    assert count(conn, "wp_novel_genres") == len(rows.genre_rows())
    assert conn.fetch_all("SELECT id, source, slug, title, chapter_count FROM wp_novel_stories ORDER BY id") == [
        (story.story[0], story.story[1], story.story[3], story.story[4], story.story[10]) for story in stories
    ]
    assert conn.fetch_all("SELECT id, story_id, title, chapter_no FROM wp_novel_chapters ORDER BY id") == [
        (row[0], row[1], row[5], row[3]) for story in stories for row in story.chapters
    ]
    assert conn.fetch_all("SELECT chapter_id, content_raw FROM wp_novel_chapter_content ORDER BY chapter_id") == [
        (row[0], row[1]) for story in stories for row in story.contents
    ]


def test_an_empty_database_gets_schema_and_rows(empty_conn: Connection) -> None:
    assert ensure(empty_conn, SMALL) is True
    assert drift.check(empty_conn) == []
    assert_holds(empty_conn, SMALL)


def test_the_second_time_nothing_is_generated(empty_conn: Connection) -> None:
    ensure(empty_conn, SMALL)
    empty_conn.execute("UPDATE wp_novel_stories SET title = 'touched' WHERE id = 7")
    assert ensure(empty_conn, SMALL) is False
    assert empty_conn.fetch_all("SELECT id FROM wp_novel_stories WHERE title = 'touched'") == [(7,)]


@pytest.mark.parametrize("other", [replace(SMALL, stories=31), replace(SMALL, bodies=6), replace(SMALL, seed=2)])
def test_other_sizes_or_another_seed_replace_what_is_there(empty_conn: Connection, other: Sizes) -> None:
    ensure(empty_conn, SMALL)
    assert ensure(empty_conn, other) is True
    assert_holds(empty_conn, other)
    assert ensure(empty_conn, other) is False


def test_another_schema_is_made_anew(empty_conn: Connection) -> None:
    ensure(empty_conn, SMALL)
    stamp = json.dumps(filling.stamp(SMALL) | {"schema": "of another branch"})
    empty_conn.execute("UPDATE wp_options SET option_value = %s WHERE option_name = 'novel_bench_catalogue'", (stamp,))
    empty_conn.execute("ALTER TABLE wp_novel_stories ADD of_another_branch INT")
    assert ensure(empty_conn, SMALL) is True
    assert drift.check(empty_conn) == []
    assert_holds(empty_conn, SMALL)


def test_stories_of_somebody_else_are_left_alone(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    empty_conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, updated_at_source, created_at, updated_at)"
        " VALUES ('a', '1', 'a', 'Theirs', NOW(), NOW(), NOW())"
    )
    with pytest.raises(Problem, match="holds stories that the benchmark did not make"):
        ensure(empty_conn, SMALL)
    assert empty_conn.fetch_all("SELECT title FROM wp_novel_stories") == [("Theirs",)]


def test_everything_lives_under_the_table_prefix(empty_settings: Settings) -> None:
    with connection.connect(replace(empty_settings.database, table_prefix="blog7_")) as conn:
        assert ensure(conn, SMALL) is True
        assert count(conn, "blog7_novel_stories") == SMALL.stories
        assert ensure(conn, SMALL) is False


# -- interrupted -----------------------------------------------------------------------------------------


@pytest.fixture
def bench_conn(empty_conn: Connection) -> Iterator[Connection]:
    """A database that the load tests take for their own, by its name."""
    address = replace(empty_conn.address, database=f"{empty_conn.address.database}_bench")
    empty_conn.execute(f"CREATE DATABASE `{address.database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci")
    with connection.connect(settings.load({"NOVEL_DATABASE_URL": address.url}).database) as conn:
        yield conn
    empty_conn.execute(f"DROP DATABASE `{address.database}`")


def started_filling(conn: Connection) -> bool:
    try:
        return count(conn, "wp_novel_stories") > 0
    except pymysql.ProgrammingError:  # no table yet
        return False


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_an_interrupted_fill_is_done_anew_by_the_next(
    bench_conn: Connection, tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    output = tmp_path / "output"
    sizes = ["--stories", str(LONG.stories), "--chapters", str(LONG.chapters), "--bodies", str(LONG.bodies)]
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "loadtests.catalogue", *sizes],
            env=clean_environ({"NOVEL_DATABASE_URL": bench_conn.address.url}),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    wait_for(lambda: started_filling(bench_conn) or process.poll() is not None, seconds=60)
    os.kill(process.pid, number)
    assert process.wait(60) == exit_code
    assert "Traceback" not in output.read_text()
    if number != signal.SIGKILL:
        assert output.read_text().endswith("catalogue: stopped.\n")
    assert 0 < count(bench_conn, "wp_novel_stories") < LONG.stories
    assert ensure(bench_conn, LONG) is True
    assert_holds(bench_conn, LONG)


def test_an_interrupted_fill_of_the_same_sizes_is_not_taken_for_whole(bench_conn: Connection) -> None:
    ensure(bench_conn, SMALL)
    filling._mark_unfinished(bench_conn)  # where a run stands that was killed after its last row
    bench_conn.execute("DELETE FROM wp_novel_stories WHERE id > 20")
    assert ensure(bench_conn, SMALL) is True
    assert_holds(bench_conn, SMALL)
