"""`novel recount-story`: counts one story at once, says what it counted, and is plain about what stands in its way."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest
from click.testing import CliRunner, Result

from cli import queue
from runtime.problems import Problem
from runtime.settings import Settings
from schema.connection import Connection
from tests.conftest import NovelCommand
from tests.store.counted_stories import Chapter, cache_version, make_story, modelled, stored

Recount = Callable[..., Result]

CHAPTERS = [Chapter(Decimal(1), 1200), Chapter(Decimal("2.5"), 800), Chapter(Decimal(9), 5, is_published=False)]


@pytest.fixture
def recount(test_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Recount:
    """Runs the command in this process."""
    monkeypatch.setattr(queue, "load_settings", lambda: test_settings)
    return lambda *arguments: CliRunner().invoke(
        queue.recount_story, ["--story-id", *map(str, arguments)], standalone_mode=False
    )


@contextmanager
def refused_updates(conn: Connection) -> Iterator[None]:
    """While the block runs, the database refuses changes of stories."""
    conn.execute_as_is(
        "CREATE TRIGGER novel_test_refused BEFORE UPDATE ON wp_novel_stories FOR EACH ROW"
        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'"
    )
    try:
        yield
    finally:
        conn.execute_as_is("DROP TRIGGER novel_test_refused")


def test_a_story_is_counted_at_once_and_the_counts_are_said(conn: Connection, recount: Recount) -> None:
    story_id = make_story(conn, chapters=CHAPTERS, scores=[7, 8])
    other_id = make_story(conn, chapters=CHAPTERS)
    done = recount(story_id)
    assert done.exception is None
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        f"Story {story_id}",
        "chapter_count 2",
        "word_count 2000",
        "last_chapter_no 2.50",
        "rating_avg 7.50",
        "rating_count 2",
        "popularity_score 8.1400",
    ]
    assert stored(conn, story_id) == modelled(CHAPTERS, [7, 8])
    assert stored(conn, other_id) == modelled([], [])  # nobody has counted this one


def test_counts_that_are_right_already_are_said_and_left_as_they_are(conn: Connection, recount: Recount) -> None:
    story_id = make_story(conn, chapters=CHAPTERS)
    recount(story_id)
    version = cache_version(conn, story_id)
    assert recount(story_id).exception is None
    assert cache_version(conn, story_id) == version


def test_a_story_without_anything_has_counts_of_nothing(conn: Connection, recount: Recount) -> None:
    story_id = make_story(conn)
    assert json.loads(recount(story_id, "--json").stdout) == {
        "story_id": story_id,
        "chapter_count": 0,
        "word_count": 0,
        "last_chapter_no": None,
        "rating_avg": None,
        "rating_count": 0,
        "popularity_score": 0.0,
    }
    assert "rating_avg        none" in recount(story_id).stdout


def test_json_has_numbers(conn: Connection, recount: Recount) -> None:
    story_id = make_story(conn, chapters=CHAPTERS, scores=[7, 8])
    found = json.loads(recount(story_id, "--json").stdout)
    assert (found["last_chapter_no"], found["rating_avg"], found["popularity_score"]) == (2.5, 7.5, 8.14)


def test_a_worker_that_counted_earlier_counts_again(conn: Connection, recount: Recount) -> None:
    """It may have read before our counts, and must not write over them."""
    story_id = make_story(conn, chapters=CHAPTERS)
    conn.execute(
        "INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, touch_count, locked_at,"
        " locked_by, updated_at) VALUES (%s, '2026-01-01', '2026-01-01', 1, '2026-01-01', '7', '2026-01-01')",
        (story_id,),
    )
    assert recount(story_id).exception is None
    assert conn.fetch_all("SELECT touch_count FROM wp_novel_story_recount_queue") == [(2,)]


def test_a_story_that_is_not_there_is_a_problem(recount: Recount) -> None:
    result = recount(2**63 - 1)
    assert isinstance(result.exception, Problem)
    assert str(result.exception) == f"there is no story {2**63 - 1}."


@pytest.mark.parametrize("story_id", ["0", "-1", "abc", str(2**63)])
def test_what_is_no_id_is_an_error_of_usage(recount: Recount, story_id: str) -> None:
    result = recount(story_id)
    assert "Invalid value for '--story-id'" in str(getattr(result.exception, "format_message", str)())


def test_a_database_that_refuses_is_a_problem_and_no_traceback(conn: Connection, recount: Recount) -> None:
    story_id = make_story(conn, chapters=CHAPTERS)
    with refused_updates(conn):
        result = recount(story_id)
    assert isinstance(result.exception, Problem)
    assert f"story {story_id} could not be counted:" in str(result.exception)
    assert "not today" in str(result.exception)


def test_from_the_shell_a_problem_is_one_line(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("recount-story", "--story-id", "4711", **environ)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "novel: there is no story 4711.\n")
