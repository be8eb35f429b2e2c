"""Chapters that get other numbers, in batches that come one after the other."""

import pytest

from schema.connection import Connection as PlainConnection
from store.payloads import ChapterFrame
from store.pool import Pool
from tests.worker.applying import chapter, events_of, push_chapters, push_stories, rows, story

SHOWN = (
    "SELECT source_chapter_id, chapter_no + 0.0, slug FROM wp_novel_chapters"
    " WHERE deleted_at IS NULL ORDER BY chapter_no"
)


@pytest.fixture(autouse=True)
async def _story(pool: Pool) -> None:
    await push_stories(pool, story())


def numbered(*refs: str, time: float = 0, first: int = 1) -> list[ChapterFrame]:
    return [chapter(ref, number, time) for number, ref in enumerate(refs, first)]


def shown(conn: PlainConnection) -> list[str]:
    found = rows(conn, SHOWN)
    for _, number, slug in found:
        assert slug == f"chuong-{int(number)}"
    return [ref for ref, _, _ in found]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_a_shift_by_one_that_comes_in_several_batches_is_done_in_any_order(
    pool: Pool, conn: PlainConnection, order: tuple[int, ...]
) -> None:
    await push_chapters(pool, *numbered(*"abcdef"))
    batches = [
        numbered("a", "b", time=1, first=2),
        numbered("c", "d", time=1, first=4),
        numbered("e", "f", time=1, first=6),
    ]
    for place in order:
        assert await push_chapters(pool, *batches[place]) == ["done", "done"]
    assert shown(conn) == list("abcdef")
    assert await push_chapters(pool, chapter("new", 1, 1)) == ["done"]
    assert shown(conn) == ["new", *"abcdef"]


async def test_two_that_swap_their_numbers_in_two_batches_are_both_there_in_the_end(
    pool: Pool, conn: PlainConnection
) -> None:
    await push_chapters(pool, *numbered("a", "b"))
    assert await push_chapters(pool, chapter("a", 2, 1)) == ["done"]
    assert shown(conn) == ["a"]  # b, of which nothing newer is known, is hidden
    assert await push_chapters(pool, chapter("b", 1, 1)) == ["done"]
    assert shown(conn) == ["b", "a"]
    assert rows(conn, "SELECT COUNT(*) FROM wp_novel_chapters") == [(2,)]


async def test_what_is_hidden_is_told_and_keeps_its_body_and_its_id(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, *numbered("a", "b"))
    (before,) = rows(conn, "SELECT id FROM wp_novel_chapters WHERE source_chapter_id = 'b'")
    conn.execute("DELETE FROM wp_novel_events")
    await push_chapters(pool, chapter("a", 2, 1))
    assert sorted(events_of(conn)) == ["chapter.deleted", "chapter.updated"]
    await push_chapters(pool, chapter("b", 1, 1))
    assert events_of(conn) == ["chapter.created"]
    assert rows(conn, "SELECT id FROM wp_novel_chapters WHERE source_chapter_id = 'b'") == [before]
    assert rows(conn, "SELECT COUNT(*) FROM wp_novel_chapter_content") == [(2,)]


async def test_a_new_chapter_an_equal_time_and_an_older_one_take_no_place(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, *numbered("a", "b", time=5))
    assert await push_chapters(pool, chapter("new", 2, 9)) == ["waits: chapter_conflict"]
    assert await push_chapters(pool, chapter("a", 2, 5)) == ["waits: chapter_conflict"]
    assert await push_chapters(pool, chapter("a", 2, 4)) == ["stale"]
    assert shown(conn) == ["a", "b"]


async def test_a_chapter_that_has_no_id_keeps_its_number(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("a", 1), chapter(None, 2))
    assert await push_chapters(pool, chapter("a", 2, 1)) == ["waits: chapter_conflict"]


async def test_what_is_hidden_does_not_come_back_with_its_old_number(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, *numbered("a", "b"))
    await push_chapters(pool, chapter("a", 2, 1))
    assert await push_chapters(pool, chapter("b", 2, 0)) == ["waits: chapter_conflict"]
    assert shown(conn) == ["a"]
