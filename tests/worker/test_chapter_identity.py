"""Which chapter an item is: by the source's id, else by its number; one row each, whatever moves where."""

from itertools import permutations

import pytest

from schema.connection import Connection as PlainConnection
from store.payloads import ChapterFrame
from store.pool import Pool
from tests.worker.applying import chapter, events_of, no_chapter, push_chapters, push_stories, rows, story

_SHOWN = """
    SELECT source_chapter_id, chapter_no + 0.0, slug FROM wp_novel_chapters WHERE deleted_at IS NULL ORDER BY chapter_no
"""
_IDS = "SELECT source_chapter_id, id FROM wp_novel_chapters"
_TEXTS = """
    SELECT c.chapter_no + 0.0, t.content_hash = UNHEX(SHA2(CONCAT('Text ', c.source_chapter_id), 256))
    FROM wp_novel_chapters c JOIN wp_novel_chapter_content t ON t.chapter_id = c.id ORDER BY c.chapter_no
"""


@pytest.fixture(autouse=True)
async def _story(pool: Pool) -> None:
    await push_stories(pool, story(), story("s2"))


def named(ref: str, number: float, time: float = 0, slug: str | None = None) -> ChapterFrame:
    """A chapter whose text tells which it is."""
    slug = slug or f"chuong-{number}".replace(".", "-")
    return chapter(ref, number, time, slug=slug, content_raw=f"Text {ref}")


async def test_a_chapter_is_found_by_the_id_of_its_source(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, named("a", 1), named("b", 2))
    before = dict(rows(conn, _IDS))
    assert await push_chapters(pool, named("a", 7.5, 1, slug="moi")) == ["done"]
    assert rows(conn, _SHOWN) == [("b", 2, "chuong-2"), ("a", 7.5, "moi")]
    assert dict(rows(conn, _IDS)) == before


async def test_a_chapter_without_an_id_is_found_by_its_number(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter(None, 1.5))
    assert await push_chapters(pool, chapter(None, 1.5, 1, slug="moi")) == ["done"]
    assert rows(conn, _SHOWN) == [(None, 1.5, "moi")]


async def test_an_item_without_an_id_is_the_chapter_with_its_number_which_keeps_its_id(
    pool: Pool, conn: PlainConnection
) -> None:
    await push_chapters(pool, named("a", 1))
    assert await push_chapters(pool, chapter(None, 1, 1, slug="moi")) == ["done"]
    assert rows(conn, _SHOWN) == [("a", 1, "moi")]


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_a_chapter_that_comes_first_without_an_id_and_then_with_one_is_one_row(
    pool: Pool, conn: PlainConnection, in_one_batch: bool
) -> None:
    frames = [chapter(None, 1), named("a", 1, 1), chapter(None, 1, 2, slug="hai"), named("a", 3, 4)]
    if in_one_batch:
        assert set(await push_chapters(pool, *frames)) == {"done"}
    else:
        for frame in frames:
            assert await push_chapters(pool, frame) == ["done"]
    assert rows(conn, _SHOWN) == [("a", 3, "chuong-3")]
    assert rows(conn, "SELECT COUNT(*) FROM wp_novel_chapter_content") == [(1,)]


async def test_ids_are_told_apart_byte_by_byte_and_by_story(pool: Pool, conn: PlainConnection) -> None:
    names = ("Abc", "abc", "abc ", "ábc", "đ", "d", "😀", "x" * 191)
    for ref in ("s1", "s2"):
        frames = [chapter(name, number, source_story_id=ref) for number, name in enumerate(names)]
        assert set(await push_chapters(pool, *frames)) == {"done"}
        assert set(await push_chapters(pool, *frames)) == {"done"}
    assert rows(conn, "SELECT COUNT(*), COUNT(DISTINCT source_chapter_id) FROM wp_novel_chapters") == [(16, 8)]


async def test_numbers_have_two_decimals(pool: Pool, conn: PlainConnection) -> None:
    numbers = [0, 0.5, 0.05, 1, 1.1, 1.11, 10, 99_999_999.99]
    frames = [chapter(None, number, slug=f"c-{place}") for place, number in enumerate(numbers)]
    assert set(await push_chapters(pool, *frames)) == {"done"}
    assert set(await push_chapters(pool, *frames)) == {"done"}
    found = rows(conn, "SELECT chapter_no FROM wp_novel_chapters ORDER BY chapter_no")
    assert [float(row[0]) for row in found] == sorted(numbers)


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_rings_of_chapters_change_places(pool: Pool, conn: PlainConnection, order: tuple[int, ...]) -> None:
    await push_chapters(pool, named("a", 1), named("b", 2), named("c", 3), named("d", 4))
    before = dict(rows(conn, _IDS))
    ring = [named("a", 2, 1), named("b", 3, 1), named("c", 1, 1)]
    assert await push_chapters(pool, *[ring[place] for place in order]) == ["done"] * 3
    assert [row[:2] for row in rows(conn, _SHOWN)] == [("c", 1), ("a", 2), ("b", 3), ("d", 4)]
    assert dict(rows(conn, _IDS)) == before
    assert rows(conn, _TEXTS) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert sorted(events_of(conn))[:7] == ["chapter.created"] * 4 + ["chapter.updated"] * 3


async def test_two_chapters_swap_their_numbers_and_keep_their_slugs(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, named("a", 1, slug="x"), named("b", 2, slug="y"))
    assert await push_chapters(pool, named("a", 2, 1, slug="x"), named("b", 1, 1, slug="y")) == ["done", "done"]
    assert rows(conn, _SHOWN) == [("b", 1, "y"), ("a", 2, "x")]


async def test_two_chapters_swap_their_slugs_and_keep_their_numbers(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, named("a", 1, slug="x"), named("b", 2, slug="y"))
    assert await push_chapters(pool, named("a", 1, 1, slug="y"), named("b", 2, 1, slug="x")) == ["done", "done"]
    assert rows(conn, _SHOWN) == [("a", 1, "y"), ("b", 2, "x")]


async def test_a_chapter_is_inserted_and_all_that_follow_move_up(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, *[named(f"c{number}", number) for number in range(1, 31)])
    moved = [named(f"c{number}", number + 1, 1) for number in range(5, 31)]
    assert set(await push_chapters(pool, named("new", 5, 1), *moved)) == {"done"}
    assert [row[0] for row in rows(conn, _SHOWN)] == [
        *(f"c{number}" for number in range(1, 5)),
        "new",
        *(f"c{number}" for number in range(5, 31)),
    ]


async def test_numbers_of_other_stories_are_their_own(pool: Pool, conn: PlainConnection) -> None:
    frames = [chapter("a", 1), chapter("a", 1, source_story_id="s2"), chapter(None, 2, source_story_id="s2")]
    assert set(await push_chapters(pool, *frames)) == {"done"}
    assert set(await push_chapters(pool, chapter("a", 2, 1), chapter("a", 3, 1, source_story_id="s2"))) == {"done"}
    found = rows(conn, "SELECT chapter_no + 0.0 FROM wp_novel_chapters ORDER BY story_id, chapter_no")
    assert found == [(2,), (2,), (3,)]


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_a_deleted_chapter_gives_up_its_number_and_slug(
    pool: Pool, conn: PlainConnection, in_one_batch: bool
) -> None:
    await push_chapters(pool, named("a", 1))
    frames = [named("b", 1, 2), no_chapter("a", time=1)]
    if in_one_batch:
        assert await push_chapters(pool, *frames) == ["done", "done"]
    else:
        assert await push_chapters(pool, frames[1]) == ["done"]
        assert await push_chapters(pool, frames[0]) == ["done"]
    assert rows(conn, _SHOWN) == [("b", 1, "chuong-1")]
    assert await push_chapters(pool, named("a", 2, 3)) == ["done"]
    assert rows(conn, _SHOWN) == [("b", 1, "chuong-1"), ("a", 2, "chuong-2")]
    assert rows(conn, _TEXTS) == [(1, 1), (2, 1)]


async def test_a_chapter_is_deleted_by_its_number_whatever_its_id(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, named("a", 1), chapter(None, 2))
    assert await push_chapters(pool, no_chapter(None, 1, 1), no_chapter("b", 2, 1)) == ["done", "done"]
    assert rows(conn, _SHOWN) == []
