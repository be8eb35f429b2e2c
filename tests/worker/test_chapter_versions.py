"""What a chapter's body was before it was changed: kept as it was stored, the last few of each chapter."""

import gzip
import hashlib

import pytest

from schema.connection import Connection as PlainConnection
from store.pool import Pool
from tests.worker.applying import chapter, no_chapter, push_chapters, push_stories, rows, story

_VERSIONS = """
    SELECT v.version, v.content_raw FROM wp_novel_chapter_versions v JOIN wp_novel_chapters c ON c.id = v.chapter_id
    WHERE c.source_chapter_id = %s ORDER BY v.version
"""


@pytest.fixture(autouse=True)
async def _story(pool: Pool) -> None:
    await push_stories(pool, story())


def kept(conn: PlainConnection, ref: str = "c") -> list[tuple[int, str]]:
    return [(version, gzip.decompress(raw).decode()) for version, raw in rows(conn, _VERSIONS, (ref,))]


async def test_the_old_body_is_kept_before_it_is_overwritten(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("c", content_raw="Một"))
    conn.execute("UPDATE wp_novel_chapter_content SET updated_at = '2020-01-01', created_at = '2019-01-01'")
    (old,) = rows(
        conn, "SELECT content_raw, content_hash, content_size, content_encoding FROM wp_novel_chapter_content"
    )
    assert kept(conn) == []
    await push_chapters(pool, chapter("c", 1, 1, content_raw="Hai"))
    (version,) = rows(
        conn,
        "SELECT content_raw, content_hash, content_size, content_encoding, YEAR(created_at), YEAR(replaced_at) > 2020,"
        " version FROM wp_novel_chapter_versions",
    )
    assert version == (*old, 2020, 1, 1)
    assert version[1:3] == (hashlib.sha256("Một".encode()).digest(), 5)


async def test_what_leaves_the_body_alone_keeps_no_version(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("c"))
    await push_chapters(pool, chapter("c", 1, 1, title="Mới"))
    assert await push_chapters(pool, chapter("c", 1, 0.7, content_raw="Cũ")) == ["stale"]
    await push_chapters(pool, no_chapter("c", time=2))
    await push_chapters(pool, chapter("c", 7, 3, is_published=False))
    assert kept(conn) == []


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_only_the_last_few_are_kept_and_their_numbers_go_on(
    pool: Pool, conn: PlainConnection, in_one_batch: bool
) -> None:
    frames = [chapter("c", 1, time, content_raw=f"Text {time}") for time in range(8)]
    batches = [frames] if in_one_batch else [[frame] for frame in frames]
    for batch in batches:
        assert set(await push_chapters(pool, *batch, versions=3)) == {"done"}
    assert kept(conn) == [(5, "Text 4"), (6, "Text 5"), (7, "Text 6")]


async def test_each_chapter_of_a_batch_has_versions_of_its_own(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("a", 1, content_raw="A0"), chapter("b", 2, content_raw="B0"))
    await push_chapters(pool, chapter("a", 1, 1, content_raw="A1"), chapter("b", 2, 1, content_raw="B0"))
    await push_chapters(pool, chapter("a", 1, 2, content_raw="A2"), chapter("b", 2, 2, content_raw="B2"))
    assert kept(conn, "a") == [(1, "A0"), (2, "A1")]
    assert kept(conn, "b") == [(1, "B0")]


async def test_a_chapter_that_changes_its_number_takes_its_versions_along(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("a", 1, content_raw="A0"), chapter("b", 2, content_raw="B0"))
    await push_chapters(pool, chapter("a", 2, 1, content_raw="A1"), chapter("b", 1, 1, content_raw="B1"))
    assert (kept(conn, "a"), kept(conn, "b")) == ([(1, "A0")], [(1, "B0")])


async def test_a_text_that_comes_back_is_kept_like_any_other(pool: Pool, conn: PlainConnection) -> None:
    for time, text in enumerate(["A", "B", "A", "B"]):
        await push_chapters(pool, chapter("c", 1, time, content_raw=text))
    assert kept(conn) == [(1, "A"), (2, "B"), (3, "A")]


async def test_none_are_kept_where_the_setting_is_none(pool: Pool, conn: PlainConnection) -> None:
    for time in range(3):
        await push_chapters(pool, chapter("c", 1, time, content_raw=f"Text {time}"), versions=5)
    assert len(kept(conn)) == 2
    await push_chapters(pool, chapter("c", 1, 3, content_raw="Text 3"), versions=1)
    assert kept(conn) == [(3, "Text 2")]
    await push_chapters(pool, chapter("c", 1, 4, content_raw="Text 4"), versions=0)
    assert kept(conn) == []


async def test_a_chapter_deleted_before_it_was_seen_has_no_version_of_nothing(
    pool: Pool, conn: PlainConnection
) -> None:
    await push_chapters(pool, no_chapter("c", time=1))
    await push_chapters(pool, chapter("c", 1, 2))
    assert kept(conn) == []
