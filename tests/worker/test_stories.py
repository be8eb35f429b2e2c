"""Stories as their source has them: written as a set, compared by time, one event for each change that is seen."""

from typing import Any

import pytest

from schema.connection import Connection as PlainConnection
from store.connection import Connection
from store.pool import Pool
from tests.store.counted_stories import Reads
from tests.worker.applying import (
    STORIES,
    apply,
    at,
    events_of,
    everything,
    job,
    no_story,
    push_stories,
    race,
    rows,
    said,
    story,
)
from worker.handler import GiveUp

_SHOWN = "SELECT source_story_id, slug, title, deleted_at IS NOT NULL FROM wp_novel_stories ORDER BY id"
_OPTIONAL = "SELECT title_original, author_name, status, cover_url, summary, language FROM wp_novel_stories"
_TIME = "SELECT updated_at_source, source_microsecond FROM wp_novel_stories"


def version(conn: PlainConnection, ref: str = "s1") -> int:
    sql = "SELECT cache_version FROM wp_novel_stories WHERE source_story_id = %s"
    return int(conn.fetch_all(sql, (ref,))[0][0])


def touched(conn: PlainConnection) -> int:
    """How many touches wait for a recount; forgotten once they are told."""
    count = int(conn.fetch_all("SELECT COALESCE(SUM(touch_count), 0) FROM wp_novel_story_recount_queue")[0][0])
    conn.execute("DELETE FROM wp_novel_story_recount_queue")
    return count


def message_of(applied: object) -> str:
    assert isinstance(applied, GiveUp)
    return applied.message


async def test_a_batch_makes_and_changes_stories_by_source_and_id(pool: Pool, conn: PlainConnection) -> None:
    assert await push_stories(pool, story("a"), story("b")) == ["done", "done"]
    assert await push_stories(pool, story("b", 1, title="Mới"), story("c", 1)) == ["done", "done"]
    assert rows(conn, _SHOWN) == [
        ("a", "truyen-a", "Truyện a", 0),
        ("b", "truyen-b", "Mới", 0),
        ("c", "truyen-c", "Truyện c", 0),
    ]


async def test_sources_and_ids_are_told_apart_byte_by_byte(pool: Pool, conn: PlainConnection) -> None:
    names = ("Abc", "abc", "abc ", "ábc", "đ", "d", "😀", "x" * 191)
    frames = [story(name, slug=f"t-{place}") for place, name in enumerate(names)]
    for source in ("truyen-a", "Truyen-a"):
        assert set(await push_stories(pool, *frames, source=source)) == {"done"}
        await push_stories(
            pool, *[story(name, 1, slug=f"t-{place}") for place, name in enumerate(names)], source=source
        )
    assert sorted(rows(conn, "SELECT source, source_story_id FROM wp_novel_stories")) == sorted(
        (source, name) for source in ("truyen-a", "Truyen-a") for name in names
    )


async def test_an_older_update_is_stale_and_changes_nothing(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(time=10, title="Mới", genres=["A"], aliases=["B"]))
    before = everything(conn)
    assert await push_stories(pool, story(time=9.999999, title="Cũ", genres=["C"], aliases=["D"])) == ["stale"]
    assert await push_stories(pool, no_story(time=9)) == ["stale"]
    assert everything(conn) == before


async def test_updates_are_compared_to_the_microsecond(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(time=10.000002, title="A"))
    assert await push_stories(pool, story(time=10.000003, title="B")) == ["done"]
    assert await push_stories(pool, story(time=10.000002, title="C")) == ["stale"]
    assert rows(conn, _SHOWN)[0][2] == "B"
    assert rows(conn, _TIME) == [(at(10).replace(tzinfo=None), 3)]


async def test_of_two_updates_in_a_batch_the_later_one_stands_whatever_their_order(
    pool: Pool, conn: PlainConnection
) -> None:
    assert await push_stories(pool, story("a", 2, title="Mới"), story("a", 1, title="Cũ")) == ["done", "done"]
    assert await push_stories(pool, story("b", 1, title="Cũ"), story("b", 2, title="Mới")) == ["done", "done"]
    assert [row[2] for row in rows(conn, _SHOWN)] == ["Mới", "Mới"]


async def test_what_a_crawler_may_leave_out_has_defaults(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story())
    assert rows(conn, _OPTIONAL) == [(None, None, 1, None, None, "vi")]
    assert rows(conn, "SELECT published_at = created_at, chapter_count FROM wp_novel_stories") == [(1, 0)]


FULL: dict[str, Any] = {
    "title_original": "斗破苍穹",
    "author_name": "Thiên Tàm Thổ Đậu",
    "status": 2,
    "cover_url": "https://a.example/b.jpg",
    "summary": "Hay",
    "language": "zh-Hant",
}


async def test_what_an_update_leaves_out_stays(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(**FULL))
    await push_stories(pool, story(time=1, title="Mới"))
    assert rows(conn, _OPTIONAL) == [tuple(FULL.values())]


async def test_an_explicit_null_empties_what_can_be_empty(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(**FULL))
    nothing: dict[str, Any] = dict.fromkeys(FULL)
    await push_stories(pool, story(time=1, **nothing))
    assert rows(conn, _OPTIONAL) == [(None, None, 2, None, None, "zh-Hant")]


async def test_published_at_is_the_time_of_the_first_ingest(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story())
    conn.execute("UPDATE wp_novel_stories SET published_at = '2020-01-01', created_at = '2020-01-01'")
    await push_stories(pool, story(time=1, title="Mới"))
    times = rows(conn, "SELECT YEAR(published_at), YEAR(created_at), YEAR(updated_at) > 2020 FROM wp_novel_stories")
    assert times == [(2020, 2020, 1)]


async def test_a_visible_change_is_one_event_one_version_and_one_touch(pool: Pool, conn: PlainConnection) -> None:
    for frame, kind in [
        (story(), "story.created"),
        (story(time=1, title="Mới"), "story.updated"),
        (story(time=2, title="Mới", aliases=["Tên khác"]), "story.updated"),
        (story(time=3, title="Mới", genres=["Tiên Hiệp"]), "story.updated"),
        (no_story(time=4), "story.deleted"),
        (story(time=5), "story.created"),
        (story(time=6, status=0), "story.deleted"),
        (story(time=7, status=1), "story.created"),
    ]:
        before = version(conn) if kind != "story.created" or frame.updated_at_source > at(0) else 0
        await push_stories(pool, frame)
        assert (events_of(conn), touched(conn), version(conn)) == ([kind], 1, before + 1)


async def test_a_draft_makes_no_event(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(status=0))
    await push_stories(pool, story(time=1, title="Mới", aliases=["A"]))
    await push_stories(pool, no_story(time=2))
    await push_stories(pool, story(time=3))
    assert events_of(conn) == []


async def test_what_changes_nothing_is_noted_with_its_time_alone(pool: Pool, conn: PlainConnection) -> None:
    labels: dict[str, Any] = {"aliases": ["A", "B"], "genres": ["G", "H"]}
    await push_stories(pool, story(**FULL, **labels))
    before = everything(conn, without=["stories"])
    cache = version(conn)
    assert await push_stories(pool, story(time=7.5, **FULL, **labels)) == ["done"]
    assert (everything(conn, without=["stories"]), version(conn)) == (before, cache)
    assert rows(conn, _TIME) == [(at(7).replace(tzinfo=None), 500_000)]
    assert await push_stories(pool, story(time=7, title="Cũ")) == ["stale"]


async def test_a_story_that_comes_back_after_its_deletion_is_the_same_row(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(aliases=["A"], summary="Hay"))
    (story_id,) = rows(conn, "SELECT id FROM wp_novel_stories")
    assert await push_stories(pool, no_story(time=1)) == ["done"]
    assert rows(conn, "SELECT deleted_at IS NULL FROM wp_novel_stories") == [(0,)]
    assert await push_stories(pool, story(time=0.5)) == ["stale"]
    assert await push_stories(pool, story(time=2)) == ["done"]
    assert rows(conn, "SELECT id FROM wp_novel_stories WHERE deleted_at IS NULL AND summary = 'Hay'") == [story_id]


async def test_a_story_deleted_before_it_was_seen_is_no_story_but_makes_older_updates_stale(
    pool: Pool, conn: PlainConnection
) -> None:
    assert await push_stories(pool, no_story(time=5)) == ["done"]
    assert await push_stories(pool, story(time=4)) == ["stale"]
    assert await push_stories(pool, no_story(time=6)) == ["done"]
    assert events_of(conn) == []
    assert rows(conn, "SELECT deleted_at IS NULL FROM wp_novel_stories") == [(0,)]


async def test_a_story_deleted_before_it_was_seen_comes_as_any_new_one(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, no_story(time=5))
    assert await push_stories(pool, story(time=6)) == ["done"]
    assert rows(conn, _SHOWN) == [("s1", "truyen-s1", "Truyện s1", 0)]
    assert rows(conn, _OPTIONAL) == [(None, None, 1, None, None, "vi")]
    assert events_of(conn) == ["story.created"]


async def test_a_slug_that_another_story_has_is_refused_and_says_whose_it_is(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a", slug="than-dao"))
    before = everything(conn)
    applied = await apply(pool, STORIES, story("b", 1, slug="than-dao", genres=["G"], aliases=["A"]), story("c", 1))
    assert said(applied) == ["failed: slug_conflict", "done"]
    assert message_of(applied.outcomes[0]) == "The slug than-dao belongs to story a of this source."
    conn.execute("DELETE FROM wp_novel_stories WHERE source_story_id = 'c'")
    assert everything(conn, without=["events", "story_recount_queue"]) == {
        name: found for name, found in before.items() if name not in ("events", "story_recount_queue")
    }


async def test_an_update_whose_slug_is_taken_changes_nothing_of_its_story(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a"), story("b"))
    before = everything(conn)
    refused = story("b", 1, slug="truyen-a", title="Mới", genres=["G"], aliases=["A"])
    assert await push_stories(pool, refused) == ["failed: slug_conflict"]
    assert everything(conn) == before


async def test_other_sources_may_have_the_same_slug(pool: Pool) -> None:
    assert await push_stories(pool, story("a", slug="than-dao"), source="a") == ["done"]
    assert await push_stories(pool, story("b", slug="than-dao"), source="b") == ["done"]


async def test_two_new_stories_of_a_batch_with_one_slug_are_one_story_and_one_refusal(
    pool: Pool, conn: PlainConnection
) -> None:
    frames = [story("b", 2, slug="than-dao"), story("a", 1, slug="than-dao")]
    assert await push_stories(pool, *frames) == ["failed: slug_conflict", "done"]
    assert [row[0] for row in rows(conn, _SHOWN)] == ["a"]


async def test_a_new_story_that_is_refused_may_have_another_slug_later_in_the_batch(
    pool: Pool, conn: PlainConnection
) -> None:
    await push_stories(pool, story("a", slug="than-dao"))
    frames = [story("b", 1, slug="than-dao"), story("b", 2, slug="than-dao-2"), story("c", 1, slug="than-dao")]
    frames.append(story("c", 2, slug="than-dao"))
    assert await push_stories(pool, *frames) == [
        "failed: slug_conflict",
        "done",
        "failed: slug_conflict",
        "failed: slug_conflict",
    ]
    assert [row[:2] for row in rows(conn, _SHOWN)] == [("a", "than-dao"), ("b", "than-dao-2")]


async def test_stories_swap_their_slugs_in_a_batch(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a", slug="x"), story("b", slug="y"), story("c", slug="z"))
    ring = [story("a", 1, slug="y"), story("b", 1, slug="z"), story("c", 1, slug="x")]
    assert await push_stories(pool, *ring) == ["done", "done", "done"]
    assert [row[:2] for row in rows(conn, _SHOWN)] == [("a", "y"), ("b", "z"), ("c", "x")]


async def test_a_deleted_story_gives_its_slug_up(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a", slug="than-dao"))
    await push_stories(pool, no_story("a", 1))
    assert await push_stories(pool, story("b", 1, slug="than-dao")) == ["done"]
    assert await push_stories(pool, story("a", 2, slug="than-dao")) == ["failed: slug_conflict"]
    assert await push_stories(pool, story("a", 3, slug="than-dao-2")) == ["done"]
    assert rows(conn, _SHOWN) == [("a", "than-dao-2", "Truyện a", 0), ("b", "than-dao", "Truyện b", 0)]


async def test_a_slug_of_full_length_is_given_up_too(pool: Pool, conn: PlainConnection) -> None:
    slug = "a" * 191
    await push_stories(pool, story("a", slug=slug))
    await push_stories(pool, no_story("a", 1))
    assert await push_stories(pool, story("b", 1, slug=slug)) == ["done"]
    assert rows(conn, "SELECT source_story_id FROM wp_novel_stories WHERE slug = %s", (slug,)) == [("b",)]


async def test_a_damaged_payload_is_given_up_and_its_neighbours_are_written(pool: Pool) -> None:
    applied = await apply(pool, STORIES, None, story("a"))
    assert said(applied) == ["failed: invalid_item", "done"]


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("newer_first", [True, False])
async def test_of_two_workers_on_one_story_the_newer_update_stands(
    pool: Pool, conn: PlainConnection, is_new: bool, newer_first: bool
) -> None:
    if not is_new:
        await push_stories(pool, story(title="Đầu"))
    older, newer = story(time=1, title="Cũ", genres=["Cũ"]), story(time=2, title="Mới", genres=["Mới"])
    first, second = (newer, older) if newer_first else (older, newer)
    became = await race(pool, conn, (STORIES, [first]), (STORIES, [second]))
    assert became == (["done"], ["stale"] if newer_first else ["done"])
    assert rows(
        conn, "SELECT title, name FROM wp_novel_stories, wp_novel_genres JOIN wp_novel_story_genres ON genre_id = id"
    ) == [("Mới", "Mới")]


async def test_a_story_that_comes_back_meanwhile_keeps_its_slug(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a", slug="than-dao"))
    await push_stories(pool, no_story("a", 1))
    back, taker = story("a", 2, slug="than-dao"), story("b", 2, slug="than-dao")
    assert await race(pool, conn, (STORIES, [back]), (STORIES, [taker])) == (["done"], ["failed: slug_conflict"])
    assert [row[:2] for row in rows(conn, _SHOWN)] == [("a", "than-dao")]


async def test_a_slug_that_is_taken_meanwhile_is_refused_to_a_story_that_comes_back(
    pool: Pool, conn: PlainConnection
) -> None:
    await push_stories(pool, story("a", slug="than-dao"))
    await push_stories(pool, no_story("a", 1))
    back, taker = story("a", 2, slug="than-dao"), story("b", 2, slug="than-dao")
    assert await race(pool, conn, (STORIES, [taker]), (STORIES, [back])) == (["done"], ["failed: slug_conflict"])
    assert [row[:2] for row in rows(conn, _SHOWN) if not row[3]] == [("b", "than-dao")]


async def test_of_two_workers_with_new_stories_of_one_slug_the_second_is_refused(
    pool: Pool, conn: PlainConnection
) -> None:
    first, second = story("a", slug="than-dao"), story("b", slug="than-dao")
    assert await race(pool, conn, (STORIES, [first]), (STORIES, [second])) == (["done"], ["failed: slug_conflict"])
    assert [row[0] for row in rows(conn, _SHOWN)] == ["a"]


async def test_a_slug_whose_story_is_deleted_in_the_same_batch_is_free(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a", slug="than-dao"))
    assert await push_stories(pool, no_story("a", 1), story("b", 2, slug="than-dao")) == ["done", "done"]
    assert [row[0] for row in rows(conn, _SHOWN) if not row[3]] == ["b"]


async def test_what_a_batch_of_stories_reads_does_not_grow_with_the_table(pool: Pool, conn: PlainConnection) -> None:
    conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, status, created_at, updated_at)"
        " SELECT 'truyen-a', CONCAT('old', seq), CONCAT('cu-', seq), 'T', 1, '2026-01-01', '2026-01-01'"
        " FROM seq_1_to_5000"
    )
    frames = [story(f"old{number}", 1, slug=f"cu-{number}", aliases=["A"], genres=["G"]) for number in range(1, 51)]
    frames += [story(f"new{number}", 1) for number in range(50)]
    jobs = [job(frame) for frame in frames]

    async def work(writing: Connection) -> Reads:
        async with Reads(writing) as reads:
            await STORIES.apply(writing, jobs)
        return reads

    reads = await pool.transaction(work)
    assert reads.entries + reads.rows < 15 * len(frames)
