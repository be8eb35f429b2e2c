"""Chapters as their source has them: rows, bodies, events, and what waits for a story."""

import gzip
import hashlib
import shutil
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from schema.connection import Connection as PlainConnection
from store import bodies, chapter_bodies, units
from store.connection import Connection
from store.jobs import Job
from store.payloads import ChapterFrame
from store.pool import Pool
from store.units import Waiting
from tests.store.counted_stories import Reads
from tests.worker.applying import (
    STORIES,
    Paused,
    apply,
    at,
    chapter,
    events_of,
    everything,
    job,
    no_chapter,
    no_story,
    push_chapters,
    push_stories,
    rows,
    said,
    story,
)
from worker.chapters import Chapters
from worker.handler import TryAgain

_SHOWN = """
    SELECT source_chapter_id, chapter_no + 0.0, title, is_published, deleted_at IS NOT NULL FROM wp_novel_chapters
    ORDER BY id
"""
_BODY = "SELECT content_raw, content_html, content_hash, content_size, content_encoding FROM wp_novel_chapter_content"
TEXT = "Đấu khí đại lục.\n\nHắn nói: <Đi!>"


def bodies_of(conn: PlainConnection) -> list[str]:
    """The texts of all chapters, in the order of their numbers."""
    sql = (
        "SELECT t.content_raw, t.content_encoding FROM wp_novel_chapter_content t"
        " JOIN wp_novel_chapters c ON c.id = t.chapter_id ORDER BY c.chapter_no"
    )
    return [bodies.decompress(raw, encoding).decode() for raw, encoding in rows(conn, sql)]


def state(conn: PlainConnection) -> tuple[int, list[str]]:
    """The story's cache version and the events since the last look."""
    return int(rows(conn, "SELECT cache_version FROM wp_novel_stories")[0][0]), events_of(conn)


@pytest.fixture
async def _story(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story())
    conn.execute("DELETE FROM wp_novel_events")
    conn.execute("DELETE FROM wp_novel_story_recount_queue")
    conn.execute("UPDATE wp_novel_stories SET cache_version = 0, updated_at = '2020-01-01'")


pytestmark = pytest.mark.usefixtures("_story")


async def test_a_chapter_is_written_with_its_body(pool: Pool, conn: PlainConnection) -> None:
    assert await push_chapters(pool, chapter("c1", 12.5, content_raw=TEXT)) == ["done"]
    assert rows(conn, _SHOWN) == [("c1", 12.5, "Chương 12.5", 1, 0)]
    ((raw, html, sha256, size, encoding),) = rows(conn, _BODY)
    assert gzip.decompress(raw).decode() == TEXT
    assert gzip.decompress(html).decode() == "<p>Đấu khí đại lục.</p>\n<p>Hắn nói: &lt;Đi!&gt;</p>\n"
    assert (sha256, size, encoding) == (hashlib.sha256(TEXT.encode()).digest(), len(TEXT.encode()), "gzip")
    assert rows(conn, "SELECT word_count FROM wp_novel_chapters") == [(7,)]


@pytest.mark.skipif(shutil.which("php") is None, reason="needs PHP")
async def test_php_reads_a_body_with_gzdecode(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter(content_raw=TEXT))
    ((raw, html, *_),) = rows(conn, _BODY)
    for stored in (raw, html):
        program = ["php", "-n", "-r", "echo gzdecode(stream_get_contents(STDIN));"]
        shown = subprocess.run(program, input=stored, capture_output=True, check=True, timeout=60).stdout
        assert shown == gzip.decompress(stored)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "none"])
async def test_a_body_and_its_html_are_kept_in_the_same_encoding(
    pool: Pool, conn: PlainConnection, encoding: str
) -> None:
    await push_chapters(pool, chapter(content_raw="<p onclick='x()'>Một <b>hai</b></p>", encoding=encoding))
    ((raw, html, _, _, stored_as),) = rows(conn, _BODY)
    assert stored_as == encoding
    assert bodies.decompress(raw, encoding) == b"<p onclick='x()'>M\xe1\xbb\x99t <b>hai</b></p>"
    assert bodies.decompress(html, encoding).decode() == "<p>Một <b>hai</b></p>"


async def test_what_a_crawler_may_leave_out_has_defaults(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter())
    sql = "SELECT source_chapter_id, is_published, published_at = created_at, deleted_at FROM wp_novel_chapters"
    assert rows(conn, sql) == [(None, 1, 1, None)]


async def test_what_an_update_leaves_out_stays(pool: Pool, conn: PlainConnection) -> None:
    zoned = datetime(2025, 5, 5, 12, 0, 0, 999, tzinfo=timezone(timedelta(hours=7)))
    await push_chapters(pool, chapter(is_published=False, published_at=zoned))
    await push_chapters(pool, chapter(time=1, title="Mới"))
    await push_chapters(pool, chapter(time=2, title="Mới hơn", published_at=None, is_published=None))
    sql = "SELECT title, is_published, published_at FROM wp_novel_chapters"
    assert rows(conn, sql) == [("Mới hơn", 0, zoned.astimezone(UTC).replace(tzinfo=None, microsecond=0))]


@pytest.mark.parametrize("earlier", [chapter(time=9.999999, content_raw="Cũ"), no_chapter(None, 1, time=9)])
async def test_an_older_update_is_stale_and_changes_nothing(
    pool: Pool, conn: PlainConnection, earlier: ChapterFrame
) -> None:
    await push_chapters(pool, chapter(time=10))
    before = everything(conn)
    assert await push_chapters(pool, earlier) == ["stale"]
    assert everything(conn) == before


async def test_of_updates_in_a_batch_the_latest_stands_whatever_their_order(pool: Pool, conn: PlainConnection) -> None:
    frames = [chapter("c", 1, time, title=f"T{time}", content_raw=f"Text {time}") for time in (3, 1, 4, 2)]
    assert await push_chapters(pool, *frames) == ["done"] * 4
    assert [row[2] for row in rows(conn, _SHOWN)] == ["T4"]
    assert bodies_of(conn) == ["Text 4"]


async def test_a_body_is_written_only_when_its_hash_has_changed_but_metadata_always(
    pool: Pool, conn: PlainConnection
) -> None:
    await push_chapters(pool, chapter(content_raw=TEXT))
    conn.execute("UPDATE wp_novel_chapter_content SET content_html = 'mark'")
    await push_chapters(pool, chapter(time=1, title="Mới", content_raw=TEXT))
    assert (rows(conn, _SHOWN)[0][2], rows(conn, _BODY)[0][1]) == ("Mới", b"mark")
    await push_chapters(pool, chapter(time=2, title="Mới", content_raw=TEXT + " Hết."))
    assert bodies_of(conn) == [TEXT + " Hết."]
    assert b"mark" not in rows(conn, _BODY)[0][1]
    assert rows(conn, "SELECT word_count FROM wp_novel_chapters") == [(8,)]


async def test_a_text_that_another_chapter_has_is_prepared_too(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("a", 1, content_raw=TEXT))
    await push_chapters(pool, chapter("b", 2, content_raw=TEXT), chapter("c", 3, content_raw=TEXT))
    assert rows(conn, "SELECT DISTINCT word_count FROM wp_novel_chapters") == [(7,)]
    assert len({row[:4] for row in rows(conn, _BODY)}) == 1


async def test_each_visible_change_is_one_event_one_version_and_one_touch(pool: Pool, conn: PlainConnection) -> None:
    for place, (frame, kind, is_news) in enumerate(
        [
            (chapter("c"), "chapter.created", True),
            (chapter("c", 1, 1, title="Mới"), "chapter.updated", False),
            (chapter("c", 1, 2, title="Mới", content_raw="Khác"), "chapter.updated", False),
            (chapter("c", 1, 3, is_published=False), "chapter.deleted", False),
            (chapter("c", 1, 4, is_published=True), "chapter.created", True),
            (no_chapter("c", time=5), "chapter.deleted", False),
            (chapter("c", 1, 6), "chapter.created", True),
        ],
        1,
    ):
        conn.execute("UPDATE wp_novel_stories SET updated_at = '2020-01-01'")
        assert await push_chapters(pool, frame) == ["done"]
        assert state(conn) == (place, [kind])
        assert rows(conn, "SELECT touch_count FROM wp_novel_story_recount_queue") == [(place,)]
        assert rows(conn, "SELECT YEAR(updated_at) > 2020 FROM wp_novel_stories") == [(int(is_news),)]


async def test_a_batch_bumps_and_touches_a_story_once(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, *[chapter(f"c{number}", number) for number in range(20)])
    assert state(conn) == (1, ["chapter.created"] * 20)
    assert rows(conn, "SELECT touch_count FROM wp_novel_story_recount_queue") == [(1,)]


async def test_what_is_not_published_makes_no_event(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("c", is_published=False))
    await push_chapters(pool, chapter("c", 1, 1, title="Mới", content_raw="Khác"))
    await push_chapters(pool, no_chapter("c", time=2))
    await push_chapters(pool, chapter("c", 1, 3))
    assert events_of(conn) == []


@pytest.mark.parametrize("hidden", [story(time=1, status=0), no_story(time=1)])
async def test_a_chapter_of_a_story_that_nobody_sees_makes_no_event(
    pool: Pool, conn: PlainConnection, hidden: Any
) -> None:
    await push_stories(pool, hidden)
    events_of(conn)
    assert await push_chapters(pool, chapter("c")) == ["done"]
    assert await push_chapters(pool, chapter("c", 1, 1, title="Mới"), no_chapter("c", time=2)) == ["done", "done"]
    assert events_of(conn) == []
    assert rows(conn, "SELECT touch_count FROM wp_novel_story_recount_queue") == [(3,)]


async def test_what_changes_nothing_is_noted_with_its_time_alone(pool: Pool, conn: PlainConnection) -> None:
    frames = [chapter("a", 1), chapter(None, 2), no_chapter("gone")]
    await push_chapters(pool, *frames)
    before = everything(conn)
    assert await push_chapters(pool, *frames) == ["done"] * 3
    assert everything(conn) == before
    later = [chapter("a", 1, 1.5), chapter(None, 2, 1.5), no_chapter("gone", time=1.5)]
    assert await push_chapters(pool, *later) == ["done"] * 3
    assert everything(conn, without=["chapters"]) == {k: v for k, v in before.items() if k != "chapters"}
    times = rows(conn, "SELECT DISTINCT updated_at_source, source_microsecond FROM wp_novel_chapters")
    assert times == [(at(1).replace(tzinfo=None), 500_000)]


async def test_a_deleted_chapter_comes_back_as_the_same_row(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("c", content_raw="Một"))
    (chapter_id,) = rows(conn, "SELECT id FROM wp_novel_chapters")
    assert await push_chapters(pool, no_chapter("c", time=1)) == ["done"]
    assert rows(conn, _SHOWN) == [("c", 1, "Chương 1", 1, 1)]
    assert await push_chapters(pool, chapter("c", 1, 0.5)) == ["stale"]
    assert await push_chapters(pool, chapter("c", 1, 2, content_raw="Hai")) == ["done"]
    assert rows(conn, "SELECT id FROM wp_novel_chapters WHERE deleted_at IS NULL") == [chapter_id]
    assert bodies_of(conn) == ["Hai"]


@pytest.mark.parametrize(
    ("gone", "older", "newer"),
    [
        (no_chapter("c", time=5), chapter("c", 1, 4), chapter("c", 1, 6)),
        (no_chapter(None, 1, time=5), chapter(None, 1, 4), chapter(None, 1, 6)),
        (no_chapter(None, 1, time=5), chapter("c", 1, 4), chapter("c", 1, 6)),
        (no_chapter("c", 1, time=5), chapter("c", 1, 4), chapter("c", 1, 6)),
    ],
)
async def test_a_chapter_deleted_before_it_was_seen_makes_older_updates_stale_and_comes_with_a_newer_one(
    pool: Pool, conn: PlainConnection, gone: ChapterFrame, older: ChapterFrame, newer: ChapterFrame
) -> None:
    assert await push_chapters(pool, gone) == ["done"]
    assert await push_chapters(pool, older) == ["stale"]
    assert events_of(conn) == []
    assert rows(conn, "SELECT COUNT(*) FROM wp_novel_chapter_content") == [(0,)]
    assert await push_chapters(pool, newer) == ["done"]
    assert rows(conn, _SHOWN) == [(newer.source_chapter_id, 1, "Chương 1", 1, 0)]
    assert events_of(conn) == ["chapter.created"]
    assert len(bodies_of(conn)) == 1


async def test_many_chapters_deleted_before_they_were_seen_do_not_get_in_each_others_way(
    pool: Pool, conn: PlainConnection
) -> None:
    gone = [no_chapter(f"c{number}", time=1) for number in range(30)]
    assert set(await push_chapters(pool, *gone[:10])) == {"done"}
    assert set(await push_chapters(pool, *gone)) == {"done"}
    assert rows(conn, "SELECT COUNT(*), SUM(deleted_at IS NULL) FROM wp_novel_chapters") == [(30, 0)]
    assert set(await push_chapters(pool, *[chapter(f"c{number}", number, 2) for number in range(30)])) == {"done"}
    assert rows(conn, "SELECT COUNT(*), SUM(deleted_at IS NULL) FROM wp_novel_chapters") == [(30, 30)]


async def test_a_damaged_payload_is_given_up_and_its_neighbours_are_written(pool: Pool) -> None:
    broken = ChapterFrame(source_story_id="s1", updated_at_source=at(0))
    applied = await apply(pool, Chapters(max_versions=5), None, broken, chapter("c"), story())
    assert said(applied) == ["failed: invalid_item", "failed: invalid_item", "done", "failed: invalid_item"]


async def enqueue_waiting(pool: Pool, waiting: Job) -> None:
    """As the loop queues again an item whose story is missing."""
    part = Waiting(waiting.unit, 0, 0, 1, 100, 1, 0, 3600, waiting_for="s2")
    await pool.transaction(lambda conn: units.add_waiting(conn, [part]))


async def test_a_chapter_without_its_story_waits_and_says_for_which(pool: Pool, conn: PlainConnection) -> None:
    applied = await apply(pool, Chapters(max_versions=5), chapter("x", source_story_id="s2"), chapter("c"))
    assert said(applied) == ["waits: story_not_found", "done"]
    outcome = applied.outcomes[0]
    assert isinstance(outcome, TryAgain)
    assert outcome.waits_for_story == "s2"
    assert outcome.message == "The story s2 of the source truyen-a is not there yet. Push it too."
    assert len(rows(conn, _SHOWN)) == 1


async def test_the_story_of_another_source_is_not_the_one(pool: Pool) -> None:
    assert await push_chapters(pool, chapter("c"), source="truyen-b") == ["waits: story_not_found"]


_DUE = "SELECT waiting_for, next_run_at <= UTC_TIMESTAMP(6) FROM wp_novel_ingest_ready"


async def test_what_waits_for_a_story_is_due_once_it_comes(pool: Pool, conn: PlainConnection) -> None:
    await enqueue_waiting(pool, job(chapter("x", source_story_id="s2")))
    await push_stories(pool, story("s3"))
    assert rows(conn, _DUE) == [("s2", 0)]
    await push_stories(pool, story("s2"))
    assert rows(conn, _DUE) == [(None, 1)]


@pytest.mark.parametrize("story_first", [True, False])
async def test_a_chapter_and_its_story_at_the_same_time_end_with_the_chapter_due(
    pool: Pool, conn: PlainConnection, story_first: bool
) -> None:
    """The chapter looks before the story is committed, and each commits first once."""
    handler = Chapters(max_versions=5)
    waiting = job(chapter("x", source_story_id="s2"))
    async with Paused(pool, STORIES, story("s2")) as coming:
        applied = await pool.transaction(lambda writing: handler.apply(writing, [waiting]))
        assert said(applied) == ["waits: story_not_found"]
        if story_first:
            await coming.commit()
        await enqueue_waiting(pool, waiting)
        await handler.committed(pool, applied.outcomes)
        assert rows(conn, _DUE) == [(None, 1) if story_first else ("s2", 0)]
    assert rows(conn, _DUE) == [(None, 1)]


async def make_neighbours(conn: PlainConnection, *, chapters: int) -> None:
    """Chapters of the same story and of others, with bodies."""
    conn.execute(
        "INSERT INTO wp_novel_chapters (story_id, source_chapter_id, chapter_no, slug, title, created_at, updated_at)"
        " SELECT IF(MOD(seq, 2), (SELECT MIN(id) FROM wp_novel_stories), 1000000 + MOD(seq, 100)), CONCAT('old', seq),"
        " seq, CONCAT('cu-', seq), 'T', '2026-01-01', '2026-01-01' FROM seq_1_to_100000 WHERE seq <= %s",
        (chapters,),
    )
    conn.execute(
        "INSERT INTO wp_novel_chapter_content (chapter_id, content_raw, content_hash, created_at, updated_at)"
        " SELECT id, 'x', UNHEX(SHA2(IF(MOD(id, 2), 'Chương này bị khóa.', id), 256)), '2026-01-01', '2026-01-01'"
        " FROM wp_novel_chapters"
    )


async def test_what_a_batch_of_chapters_reads_does_not_grow_with_the_tables(pool: Pool, conn: PlainConnection) -> None:
    await make_neighbours(conn, chapters=50_000)
    old = [chapter(f"old{number}", number, 1, slug=f"cu-{number}") for number in range(1, 201, 2)]
    new = [chapter(f"new{number}", 60_000 + number, 1) for number in range(50)]
    new += [no_chapter(f"old{number}", time=1) for number in range(301, 351, 2)]
    new += [no_chapter(f"gone{number}", time=1) for number in range(25)]
    frames = [*old, *new]
    jobs = [job(frame) for frame in frames]
    shared = hashlib.sha256("Chương này bị khóa.".encode()).digest()

    async def work(writing: Connection) -> tuple[Reads, Reads]:
        async with Reads(writing) as looking:
            assert await chapter_bodies.known(writing, {shared, bytes(32)}) == {shared}
        async with Reads(writing) as applying:
            applied = await Chapters(max_versions=5).apply(writing, jobs)
        assert set(said(applied)) == {"done"}
        return looking, applying

    looking, applying = await pool.transaction(work)
    assert looking.entries + looking.rows < 10
    assert applying.entries + applying.rows < 15 * len(frames)
