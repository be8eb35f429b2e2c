"""Aliases and genres of stories: each replaced as a set, genres made when a story first has them."""

import asyncio

import pytest

from schema.connection import Connection as PlainConnection
from store.pool import Pool
from tests.worker.applying import (
    STORIES,
    apply,
    events_of,
    everything,
    no_story,
    push_stories,
    race,
    rows,
    story,
    until_one_waits,
)

_GENRES = "SELECT slug, name FROM wp_novel_genres ORDER BY slug"


def aliases(conn: PlainConnection, ref: str = "s1") -> list[str]:
    sql = (
        "SELECT a.alias FROM wp_novel_story_aliases a JOIN wp_novel_stories s ON s.id = a.story_id"
        " WHERE s.source_story_id = %s ORDER BY a.id"
    )
    return [row[0] for row in rows(conn, sql, (ref,))]


def genres(conn: PlainConnection, ref: str = "s1") -> list[str]:
    sql = (
        "SELECT g.slug FROM wp_novel_genres g JOIN wp_novel_story_genres sg ON sg.genre_id = g.id"
        " JOIN wp_novel_stories s ON s.id = sg.story_id WHERE s.source_story_id = %s ORDER BY g.slug"
    )
    return [row[0] for row in rows(conn, sql, (ref,))]


def search_text(conn: PlainConnection) -> str:
    return str(rows(conn, "SELECT search_text FROM wp_novel_stories")[0][0])


async def test_aliases_and_genres_are_replaced_as_sets(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(aliases=["A", "B"], genres=["X", "Y"]))
    await push_stories(pool, story(time=1, aliases=["C", "B"], genres=["Z", "Y"]))
    assert (aliases(conn), genres(conn)) == (["C", "B"], ["y", "z"])


async def test_aliases_and_genres_that_are_left_out_stay(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(aliases=["A"], genres=["X"]))
    await push_stories(pool, story(time=1, title="Mới"))
    assert (aliases(conn), genres(conn)) == (["A"], ["x"])
    await push_stories(pool, story(time=2, aliases=["B"]))
    assert (aliases(conn), genres(conn)) == (["B"], ["x"])
    await push_stories(pool, story(time=3, genres=["Y"]))
    assert (aliases(conn), genres(conn)) == (["B"], ["y"])


async def test_null_says_nothing_of_aliases_and_genres(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(aliases=["A"], genres=["X"]))
    await push_stories(pool, story(time=1, aliases=None, genres=None))
    assert (aliases(conn), genres(conn)) == (["A"], ["x"])


async def test_empty_lists_leave_none(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(aliases=["A"], genres=["X"]))
    await push_stories(pool, story(time=1, aliases=[], genres=[]))
    assert (aliases(conn), genres(conn), events_of(conn)) == ([], [], ["story.created", "story.updated"])
    assert rows(conn, _GENRES) == [("x", "X")]


async def test_each_story_of_a_batch_keeps_its_own(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a", aliases=["A"], genres=["X"]), story("b", aliases=["A", "B"], genres=["X", "Y"]))
    await push_stories(pool, story("a", 1, aliases=[], genres=["Y"]), story("b", 1))
    assert (aliases(conn, "a"), genres(conn, "a")) == ([], ["y"])
    assert (aliases(conn, "b"), genres(conn, "b")) == (["A", "B"], ["x", "y"])


async def test_a_deleted_story_keeps_its_aliases_and_genres_for_its_return(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(aliases=["A"], genres=["X"]))
    await push_stories(pool, no_story(time=1))
    await push_stories(pool, story(time=2))
    assert (aliases(conn), genres(conn)) == (["A"], ["x"])


@pytest.mark.parametrize(
    "spelling", ["Tiên Hiệp", "tien-hiep", "TIÊN HIỆP", "Tiên  hiệp", "Tie\u0302n Hie\u0323\u0302p"]
)
async def test_a_genre_is_the_same_however_it_is_written(pool: Pool, conn: PlainConnection, spelling: str) -> None:
    await push_stories(pool, story("a", genres=["Tiên Hiệp"]))
    before = everything(conn, without=["stories"])
    await push_stories(pool, story("a", 1, genres=[spelling]))
    assert everything(conn, without=["stories"]) == before
    await push_stories(pool, story("b", genres=[spelling, "Tiên Hiệp"]))
    assert rows(conn, _GENRES) == [("tien-hiep", "Tiên Hiệp")]
    assert genres(conn, "a") == genres(conn, "b") == ["tien-hiep"]


async def test_a_genre_whose_name_is_there_under_another_slug_is_that_one(pool: Pool, conn: PlainConnection) -> None:
    conn.execute("INSERT INTO wp_novel_genres (slug, name, created_at) VALUES ('xianxia', 'Tiên Hiệp', '2026-01-01')")
    assert await push_stories(pool, story(genres=["tiên hiệp", "Kiếm"])) == ["done"]
    assert genres(conn) == ["kiem", "xianxia"]


async def test_genres_in_other_scripts_are_told_apart(pool: Pool, conn: PlainConnection) -> None:
    names = ["玄幻", "仙侠", "фэнтези", "무협", "ラブコメ"]
    await push_stories(pool, story(genres=names))
    assert sorted(row[1] for row in rows(conn, _GENRES)) == sorted(names)
    assert len(genres(conn)) == 5


async def test_two_workers_make_the_same_new_genres_once(pool: Pool, conn: PlainConnection) -> None:
    first, second = story("a", genres=["X", "Y", "Z"]), story("b", genres=["z", "Mới", "y", "x"])
    assert await race(pool, conn, (STORIES, [first]), (STORIES, [second])) == (["done"], ["done"])
    assert [row[0] for row in rows(conn, _GENRES)] == ["moi", "x", "y", "z"]
    assert (genres(conn, "a"), genres(conn, "b")) == (["x", "y", "z"], ["moi", "x", "y", "z"])


async def test_genres_that_another_worker_takes_back_are_made_by_who_waited(pool: Pool, conn: PlainConnection) -> None:
    has_made, may_fail = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        has_made.set()
        await may_fail.wait()
        raise LookupError

    failing = asyncio.create_task(apply(pool, STORIES, story("a", genres=["X", "Y"]), before_commit=fail))
    async with asyncio.timeout(20):
        await has_made.wait()
    waiting = asyncio.create_task(push_stories(pool, story("b", genres=["Y", "X"])))
    await until_one_waits(conn)
    may_fail.set()
    with pytest.raises(LookupError):
        await failing
    assert await waiting == ["done"]
    assert (genres(conn, "a"), genres(conn, "b")) == ([], ["x", "y"])


# Equal under the table's collation, though no folding of ours says so; unequal there, though folded they are the same.
ALIKE = [["かな", "カナ"], ["Æon", "aeon"], ["Cafe", "Café", "CAFÉ"], ["Đấu", "dau"], ["が", "か"], ["ＡＢＣ", "abc"]]


@pytest.mark.parametrize("names", ALIKE, ids=lambda names: names[0])
async def test_aliases_are_told_apart_as_the_table_does_and_written_once(
    pool: Pool, conn: PlainConnection, names: list[str]
) -> None:
    given = [*names, "Khác", *reversed(names)]
    await push_stories(pool, story(aliases=given))
    distinct = rows(
        conn,
        "SELECT COUNT(DISTINCT alias) FROM (" + " UNION ALL ".join(["SELECT %s alias"] * len(names)) + ") t",
        names,
    )
    assert len(aliases(conn)) == distinct[0][0] + 1
    assert aliases(conn)[0] == names[0]
    before = everything(conn, without=["stories"])
    await push_stories(pool, story(time=1, aliases=given))
    assert everything(conn, without=["stories"]) == before


async def test_two_stories_may_have_the_same_alias(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story("a", aliases=["X"]), story("b", aliases=["x", "Y"]))
    assert (aliases(conn, "a"), aliases(conn, "b")) == (["X"], ["x", "Y"])


async def test_aliases_are_found_by_search_as_they_are_now(pool: Pool, conn: PlainConnection) -> None:
    await push_stories(pool, story(title="Đấu Phá", aliases=["Thương Khung"], author_name="Thổ Đậu"))
    assert search_text(conn) == "dau_ pha_ tho_ dau_ thuong_ khung_"
    await push_stories(pool, story(time=1, title="Đế Bá"))
    assert search_text(conn) == "de_ ba_ tho_ dau_ thuong_ khung_"
    await push_stories(pool, story(time=2, title="Đế Bá", aliases=["Mới"]))
    assert search_text(conn) == "de_ ba_ tho_ dau_ moi_"


async def test_two_workers_that_make_the_same_genres_in_opposite_order_both_succeed(
    pool: Pool, conn: PlainConnection
) -> None:
    """Each makes one of its own in a first round and needs the other's in the second: one is run again."""
    batch_a = [story("a", 1, genres=["P"]), story("a", 2, genres=["Q"])]
    batch_b = [story("b", 1, genres=["Q"]), story("b", 2, genres=["P"])]
    for _ in range(5):
        async with asyncio.timeout(20):
            await asyncio.gather(push_stories(pool, *batch_a), push_stories(pool, *batch_b))
        assert (genres(conn, "a"), genres(conn, "b")) == (["q"], ["p"])
        for table in ("stories", "genres", "story_genres"):
            conn.execute(f"DELETE FROM wp_novel_{table}")
