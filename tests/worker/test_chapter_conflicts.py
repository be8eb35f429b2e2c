"""Chapters that are in each other's way: refused for now, or settled between two workers."""

import asyncio
import gzip
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.connection import Connection as PlainConnection
from store.payloads import AnyFrame, ChapterFrame, StoryFrame
from store.pool import Pool
from tests.store.counting import counted
from tests.worker.applying import (
    STORIES,
    apply,
    at,
    chapter,
    events_of,
    everything,
    no_chapter,
    no_story,
    push_chapters,
    push_stories,
    race,
    rows,
    said,
    story,
)
from worker import html
from worker.chapters import Chapters
from worker.handler import Applied, GiveUp, TryAgain

_SHOWN = (
    "SELECT source_chapter_id, chapter_no + 0.0 FROM wp_novel_chapters WHERE deleted_at IS NULL ORDER BY chapter_no"
)
_BODIES = """
    SELECT t.content_size FROM wp_novel_chapter_content t JOIN wp_novel_chapters c ON c.id = t.chapter_id
    ORDER BY c.chapter_no
"""


@pytest.fixture(autouse=True)
async def _story(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(), story("s2"))
    events_of(conn)


def chapters() -> Chapters:
    return Chapters(max_versions=5)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (chapter("b", 1, 1, slug="khac"), "The number 1.00 belongs to chapter a of this story."),
        (chapter("b", 9, 1, slug="chuong-1"), "The slug chuong-1 belongs to chapter a of this story."),
        (chapter("b", 9, 1, slug="chuong-3"), "The slug chuong-3 belongs to chapter 3.00 of this story."),
    ],
)
async def test_a_number_or_slug_that_another_chapter_has_is_refused_for_now(
    pool: Pool, conn: PlainConnection, frame: ChapterFrame, message: str
) -> None:
    await push_chapters(pool, chapter("a", 1), chapter(None, 3))
    before = everything(conn)
    applied = await apply(pool, chapters(), frame)
    assert said(applied) == ["waits: chapter_conflict"]
    assert isinstance(applied.outcomes[0], TryAgain)
    assert applied.outcomes[0].message == message
    assert everything(conn) == before


async def test_an_update_that_is_refused_leaves_its_chapter_whole(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("a", 1), chapter("b", 2))
    before = everything(conn)
    assert await push_chapters(pool, chapter("b", 1, 0, title="Mới", content_raw="Mới")) == ["waits: chapter_conflict"]
    assert everything(conn) == before


async def test_a_conflict_does_not_hold_up_its_neighbours(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("a", 1))
    frames = [chapter("b", 2, 1), chapter("x", 1, 1), chapter("c", 3, 1), chapter("d", 1, 1, source_story_id="s2")]
    assert await push_chapters(pool, *frames) == ["done", "waits: chapter_conflict", "done", "done"]


async def test_two_new_chapters_with_one_number_are_one_chapter_and_one_conflict(
    pool: Pool, conn: PlainConnection
) -> None:
    frames = [chapter("b", 1, 2), chapter("a", 1, 1)]
    assert await push_chapters(pool, *frames) == ["waits: chapter_conflict", "done"]
    assert rows(conn, _SHOWN) == [("a", 1)]


async def test_what_was_refused_is_done_once_the_other_has_moved_away(pool: Pool, conn: PlainConnection) -> None:
    await push_chapters(pool, chapter("a", 1))
    wanted = chapter("b", 1, 1)
    assert await push_chapters(pool, wanted) == ["waits: chapter_conflict"]
    assert await push_chapters(pool, chapter("a", 2, 2)) == ["done"]
    assert await push_chapters(pool, wanted) == ["done"]
    assert rows(conn, _SHOWN) == [("b", 1), ("a", 2)]


async def test_what_moves_away_later_in_the_batch_makes_room_in_the_same_batch(
    pool: Pool, conn: PlainConnection
) -> None:
    await push_chapters(pool, chapter("a", 1))
    frames = [chapter("a", 1, 1, title="Mới"), chapter("b", 1, 2), chapter("a", 2, 3)]
    assert await push_chapters(pool, *frames) == ["done"] * 3
    assert rows(conn, _SHOWN) == [("b", 1), ("a", 2)]


async def test_an_older_update_that_is_refused_does_not_hold_up_a_newer_one(pool: Pool, conn: PlainConnection) -> None:
    """The newer ones of `a` and `b` have to be seen together, because they swap."""
    await push_chapters(pool, chapter("a", 2), chapter("b", 1), chapter("c", 5, 9))
    frames = [chapter("a", 5, 1, slug="chuong-5"), chapter("a", 1, 2), chapter("b", 2, 2)]
    assert await push_chapters(pool, *frames) == ["waits: chapter_conflict", "done", "done"]
    assert rows(conn, _SHOWN) == [("a", 1), ("b", 2), ("c", 5)]


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("newer_first", [True, False])
async def test_of_two_workers_on_one_chapter_the_newer_update_stands(
    pool: Pool, conn: PlainConnection, is_new: bool, newer_first: bool
) -> None:
    if not is_new:
        await push_chapters(pool, chapter("a", 1))
    older, newer = chapter("a", 2, 1, content_raw="Cũ"), chapter("a", 3, 2, content_raw="Mới hơn")
    first, second = (newer, older) if newer_first else (older, newer)
    became = await race(pool, conn, (chapters(), [first]), (chapters(), [second]))
    assert became == (["done"], ["stale"] if newer_first else ["done"])
    assert rows(conn, _SHOWN) == [("a", 3)]
    assert rows(conn, _BODIES) == [(len("Mới hơn".encode()),)]


async def test_of_two_workers_with_a_deletion_and_an_update_the_newer_stands(pool: Pool, conn: PlainConnection) -> None:
    update, deletion = chapter("a", 1, 2), no_chapter("a", time=1)
    assert await race(pool, conn, (chapters(), [update]), (chapters(), [deletion])) == (["done"], ["stale"])
    assert rows(conn, _SHOWN) == [("a", 1)]
    assert events_of(conn) == ["chapter.created"]


async def test_two_workers_that_bring_a_chapter_without_and_with_its_id_make_one(
    pool: Pool, conn: PlainConnection
) -> None:
    without, with_id = chapter(None, 1), chapter("a", 1, 1)
    assert await race(pool, conn, (chapters(), [without]), (chapters(), [with_id])) == (["done"], ["done"])
    assert rows(conn, _SHOWN) == [("a", 1)]


async def test_of_two_workers_that_want_one_number_the_second_is_refused(pool: Pool, conn: PlainConnection) -> None:
    became = await race(pool, conn, (chapters(), [chapter("a", 1)]), (chapters(), [chapter("b", 1)]))
    assert became == (["done"], ["waits: chapter_conflict"])
    assert rows(conn, _SHOWN) == [("a", 1)]


async def test_workers_on_the_same_stories_in_opposite_order_meet_in_no_deadlock(
    pool: Pool, conn: PlainConnection
) -> None:
    before = counted("novel_database_retries_total", error="1213")
    one = [chapter(f"a{place}", place, 1, source_story_id=ref) for place in range(5) for ref in ("s1", "s2")]
    other = [chapter(f"b{place}", 100 + place, 1, source_story_id=ref) for place in range(5) for ref in ("s2", "s1")]
    for _ in range(5):
        async with asyncio.timeout(20):
            became = await asyncio.gather(push_chapters(pool, *one), push_chapters(pool, *other))
        assert list(became) == [["done"] * 10, ["done"] * 10]
        conn.execute("DELETE FROM wp_novel_chapters")
        conn.execute("DELETE FROM wp_novel_chapter_content")
    assert counted("novel_database_retries_total", error="1213") == before


TEXTS = ("Một", "Một hai", "<p>Một hai ba</p>")
VERSIONS = 3


@dataclass
class World:
    """What a source has, and every update it has sent so far: what came last is how things are."""

    time: int = 0
    sent: list[AnyFrame] = field(default_factory=list)
    stories: dict[str, StoryFrame] = field(default_factory=dict)
    chapters: dict[tuple[str, str], ChapterFrame] = field(default_factory=dict)

    def send_story(self, ref: str, choice: int) -> None:
        self.time += 1
        labels = [["A", "B"], ["B"], [], ["C", "A"]][choice % 4]
        is_gone = choice % 5 == 4
        full = {"slug": f"{ref}-{choice % 3}", "title": f"T{choice}", "status": choice % 3}
        frame = no_story(ref, self.time) if is_gone else story(ref, self.time, **full, aliases=labels, genres=labels)
        self.stories[ref] = frame
        self.sent.append(frame)

    def send_chapter(self, story_ref: str, ref: str, choice: int) -> None:
        """A new one, a deletion, another text, another number, or a number taken over from another in exchange."""
        self.time += 1
        taken = {
            frame.chapter_no: name
            for (of, name), frame in self.chapters.items()
            if of == story_ref and not frame.deleted and name != ref
        }
        present = self.chapters.get((story_ref, ref))
        if choice % 6 == 5:
            self._keep(story_ref, ref, no_chapter(ref, time=self.time, source_story_id=story_ref))
            return
        number = Decimal(1 + choice % 7)
        if number in taken:
            if present is None or present.deleted:
                number = next(free for free in map(Decimal, range(1, 100)) if free not in taken)
            else:
                assert present.chapter_no is not None
                self._update(story_ref, taken[number], present.chapter_no, choice + 1)
        self._update(story_ref, ref, number, choice)

    def _update(self, story_ref: str, ref: str, number: Decimal, choice: int) -> None:
        text = TEXTS[choice % 3] + f" {story_ref}" * (choice % 2)
        frame = chapter(
            ref,
            int(number),
            self.time,
            source_story_id=story_ref,
            title=f"T{choice % 4}",
            content_raw=text,
            is_published=choice % 4 != 3,
            published_at=at(0),
        )
        self._keep(story_ref, ref, frame)

    def _keep(self, story_ref: str, ref: str, frame: ChapterFrame) -> None:
        self.chapters[story_ref, ref] = frame
        self.sent.append(frame)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World()
    for ref in ("s1", "s2"):
        world.send_story(ref, 0)
    steps = st.tuples(st.sampled_from(["s1", "s2"]), st.sampled_from(["", "", "a", "b", "c", "d"]), st.integers(0, 200))
    for story_ref, ref, choice in draw(st.lists(steps, min_size=1, max_size=24)):
        if ref:
            world.send_chapter(story_ref, ref, choice)
        else:
            world.send_story(story_ref, choice)
    return world


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[World, list[list[AnyFrame]]]:
    """A source, and its updates as they arrive: in any order, some twice, in batches of any size."""
    world = draw(worlds())
    repeated = draw(st.lists(st.sampled_from(world.sent), max_size=3))
    frames = draw(st.permutations(world.sent + repeated))
    batches: list[list[AnyFrame]] = [[]]
    for frame in frames:
        if draw(st.integers(0, 2)) == 0:
            batches.append([])
        batches[-1].append(frame)
    return world, batches


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arriving=arrivals())
async def test_updates_in_any_order_and_any_batches_by_two_workers_end_as_the_source_has_it(
    pool: Pool, conn: PlainConnection, arriving: tuple[World, list[list[AnyFrame]]]
) -> None:
    world, batches = arriving
    source = f"nguon-{uuid.uuid4().hex[:12]}"
    waiting: list[AnyFrame] = []

    async def work(own: list[list[AnyFrame]]) -> None:
        for batch in own:
            waiting.extend(await push(pool, batch, source))

    async with asyncio.timeout(60):
        await asyncio.gather(work(batches[::2]), work(batches[1::2]))
        for _ in range(len(world.sent) + 1):
            if waiting:
                waiting = await push(pool, waiting, source)
    assert waiting == []
    assert_like(conn, world, source)
    before = everything(conn)
    assert await push(pool, world.sent, source) == []
    assert everything(conn) == before


async def push(pool: Pool, frames: Sequence[AnyFrame], source: str) -> list[AnyFrame]:
    """Apply items, stories first; returns those that have to be tried again."""
    some = [frame for frame in frames if isinstance(frame, StoryFrame)]
    others = [frame for frame in frames if isinstance(frame, ChapterFrame)]
    applied = Applied()
    if some:
        applied += await apply(pool, STORIES, *some, source=source)
    if others:
        applied += await apply(pool, Chapters(max_versions=VERSIONS), *others, source=source)
    assert not [outcome for outcome in applied.outcomes if isinstance(outcome, GiveUp)]
    again = [outcome.job.frame for outcome in applied.outcomes if isinstance(outcome, TryAgain)]
    return [frame for frame in again if frame is not None]


def assert_like(conn: PlainConnection, world: World, source: str) -> None:
    sql = "SELECT source_story_id, slug, title, status, id, deleted_at IS NOT NULL FROM wp_novel_stories"
    found = {row[0]: row[1:] for row in rows(conn, f"{sql} WHERE source = %s", (source,))}
    assert set(found) == set(world.stories)
    for ref, frame in world.stories.items():
        *shown, story_id, is_deleted = found[ref]
        assert bool(is_deleted) == frame.deleted
        if not frame.deleted:
            assert shown == [frame.slug, frame.title, frame.status]
            aliases = rows(
                conn, "SELECT alias FROM wp_novel_story_aliases WHERE story_id = %s ORDER BY id", (story_id,)
            )
            assert [row[0] for row in aliases] == list(frame.aliases or ())
            assert genres_of(conn, story_id) == {name.lower() for name in frame.genres or ()}
        assert_chapters(conn, {ref_: c for (of, ref_), c in world.chapters.items() if of == ref}, story_id)


def genres_of(conn: PlainConnection, story_id: int) -> set[str]:
    sql = "SELECT slug FROM wp_novel_genres JOIN wp_novel_story_genres ON genre_id = id WHERE story_id = %s"
    return {row[0] for row in rows(conn, sql, (story_id,))}


def assert_chapters(conn: PlainConnection, wanted: dict[str, ChapterFrame], story_id: int) -> None:
    found = rows(
        conn,
        "SELECT c.id, c.source_chapter_id, c.chapter_no, c.slug, c.title, c.is_published, c.deleted_at IS NOT NULL,"
        " c.word_count, t.content_hash, t.content_raw, t.content_size FROM wp_novel_chapters c"
        " LEFT JOIN wp_novel_chapter_content t ON t.chapter_id = c.id WHERE c.story_id = %s",
        (story_id,),
    )
    assert sorted(row[1] for row in found) == sorted(wanted)
    for chapter_id, ref, number, slug, title, is_published, is_deleted, words, sha256, raw, size in found:
        frame = wanted[ref]
        assert bool(is_deleted) == frame.deleted
        hashes = [sha256]
        if raw is not None:
            text = gzip.decompress(raw)
            assert (hashlib.sha256(text).digest(), len(text), html.prepare(text).words) == (sha256, size, words)
        if not frame.deleted:
            assert (number, slug, title, bool(is_published)) == (
                *(frame.chapter_no, frame.slug, frame.title, frame.is_published),
            )
            assert frame.content is not None
            assert sha256 == frame.content.sha256
        sql = "SELECT version, content_hash, content_raw FROM wp_novel_chapter_versions WHERE chapter_id = %s"
        versions = rows(conn, f"{sql} ORDER BY version DESC", (chapter_id,))
        assert len(versions) <= VERSIONS
        assert [row[0] for row in versions] == [versions[0][0] - place for place in range(len(versions))]
        for _, old, old_raw in versions:
            assert hashlib.sha256(gzip.decompress(old_raw)).digest() == old != hashes[-1]
            hashes.append(old)
