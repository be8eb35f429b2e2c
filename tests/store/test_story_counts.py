"""What a story's row says: as a simple model counts it, and written only where nobody else is at work."""

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.connection import Connection as PlainConnection
from store import story_counts
from store.connection import Connection
from store.pool import Pool
from store.story_counts import MAX_POPULARITY, MAX_WORDS, Written
from tests.store.counted_stories import Chapter, Reads, cache_version, make_story, modelled, stored

ONE = Decimal(1)
CHAPTERS = st.lists(
    st.builds(
        Chapter,
        number=st.decimals(min_value=-5, max_value=99_999_999, places=2, allow_nan=False),
        words=st.integers(0, 5000) | st.just(MAX_WORDS),
        is_published=st.booleans(),
        is_deleted=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda chapter: chapter.number,
)
SCORES = st.lists(st.integers(1, 10), max_size=7)


async def recount(pool: Pool, *story_ids: int) -> Written:
    async with pool.reading() as reading:
        counts = await story_counts.compute(reading, story_ids)
    return await pool.transaction(lambda conn: story_counts.write(conn, counts))


@pytest.mark.parametrize(
    ("chapters", "words", "rating", "ratings", "score"),
    [
        (0, 0, None, 0, "0"),
        (1, 0, None, 0, "0.3"),
        (0, 10_000, None, 0, "0.2"),
        (0, 0, "7.67", 3, "11.505"),
        (100, 250_000, "8.50", 40, "205"),
        (0, 2, None, 0, "0"),  # 0.00004
        (0, 3, None, 0, "0.0001"),  # 0.00006
        (0, 52, None, 0, "0.001"),  # 0.00104
        (3, MAX_WORDS, "10.00", 2**31, "10737505140.2459"),
    ],
)
def test_popularity_is_as_specified(chapters: int, words: int, rating: str | None, ratings: int, score: str) -> None:
    computed = story_counts.popularity(
        chapter_count=chapters,
        word_count=words,
        rating_avg=None if rating is None else Decimal(rating),
        rating_count=ratings,
    )
    assert computed == min(Decimal(score), MAX_POPULARITY)


def test_half_of_the_last_place_is_rounded_up_as_the_server_does() -> None:
    # 25 words are 0.0005; 2.5 of the last place come from 12.5 words, which nobody writes: from a rating and words.
    assert story_counts.counted(
        1, chapter_count=0, word_count=0, last_chapter_no=None, rating_count=8, rating_sum=25
    ).rating_avg == Decimal("3.13")


def test_the_largest_counts_fit_into_the_column() -> None:
    counts = story_counts.counted(
        1,
        chapter_count=2**32 - 1,
        word_count=2**70,
        last_chapter_no=ONE,
        rating_count=2**32 - 1,
        rating_sum=10 * (2**32 - 1),
    )
    assert (counts.word_count, counts.rating_avg, counts.popularity_score) == (MAX_WORDS, Decimal(10), MAX_POPULARITY)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories=st.lists(st.tuples(CHAPTERS, SCORES), min_size=1, max_size=4))
async def test_counts_are_those_of_a_simple_model(
    pool: Pool, conn: PlainConnection, stories: list[tuple[list[Chapter], list[int]]]
) -> None:
    with conn.transaction():
        ids = [make_story(conn, chapters=chapters, scores=scores) for chapters, scores in stories]
    assert (await recount(pool, *reversed(ids))).story_ids == set(ids)
    assert [stored(conn, story_id) for story_id in ids] == [modelled(*story) for story in stories]


async def test_only_what_has_changed_is_written_and_gets_a_new_version(pool: Pool, conn: PlainConnection) -> None:
    first, second = (make_story(conn, chapters=[Chapter(ONE, 100)], scores=[7]) for _ in range(2))
    assert await recount(pool, first, second) == Written(frozenset({first, second}), 2)
    assert await recount(pool, first, second) == Written(frozenset({first, second}), 0)
    conn.execute("UPDATE wp_novel_chapters SET word_count = 101 WHERE story_id = %s", (second,))
    assert await recount(pool, first, second) == Written(frozenset({first, second}), 1)
    assert (cache_version(conn, first), cache_version(conn, second)) == (1, 2)


async def test_a_recount_is_nothing_new_to_read(pool: Pool, conn: PlainConnection) -> None:
    story_id = make_story(conn, chapters=[Chapter(ONE, 100)])
    before = conn.fetch_all("SELECT updated_at FROM wp_novel_stories WHERE id = %s", (story_id,))
    assert (await recount(pool, story_id)).changed == 1
    assert conn.fetch_all("SELECT updated_at FROM wp_novel_stories WHERE id = %s", (story_id,)) == before


@pytest.mark.parametrize(
    "column", ["chapter_count", "word_count", "last_chapter_no", "rating_avg", "rating_count", "popularity_score"]
)
async def test_a_wrong_value_in_any_column_is_put_right(pool: Pool, conn: PlainConnection, column: str) -> None:
    chapters, scores = [Chapter(Decimal("1.5"), 100)], [7, 8]
    story_id = make_story(conn, chapters=chapters, scores=scores)
    await recount(pool, story_id)
    conn.execute(f"UPDATE wp_novel_stories SET {column} = 99 WHERE id = %s", (story_id,))
    assert (await recount(pool, story_id)).changed == 1
    assert stored(conn, story_id) == modelled(chapters, scores)


async def test_a_story_that_lost_its_last_chapter_and_rating_has_none(pool: Pool, conn: PlainConnection) -> None:
    story_id = make_story(conn, chapters=[Chapter(ONE, 100)], scores=[3])
    await recount(pool, story_id)
    conn.execute("UPDATE wp_novel_chapters SET deleted_at = UTC_TIMESTAMP()")
    conn.execute("DELETE FROM wp_novel_ratings")
    await recount(pool, story_id)
    assert stored(conn, story_id) == (0, 0, None, None, 0, 0)


async def test_what_is_no_score_is_not_counted(pool: Pool, conn: PlainConnection) -> None:
    story_id = make_story(conn, scores=[0, 1, 10, 11, 255])
    await recount(pool, story_id)
    assert stored(conn, story_id) == modelled([], [1, 10])


async def test_stories_that_are_not_there_are_left_out(pool: Pool, conn: PlainConnection) -> None:
    story_id = make_story(conn)
    async with pool.reading() as reading:
        counts = await story_counts.compute(reading, [story_id + 1, story_id, story_id])
        assert [count.story_id for count in counts] == [story_id]
        assert await story_counts.compute(reading, []) == []


async def test_a_row_that_somebody_else_has_locked_is_left_out_without_waiting(
    pool: Pool, conn: PlainConnection
) -> None:
    first, second = (make_story(conn, chapters=[Chapter(ONE, 100)]) for _ in range(2))
    with conn.transaction():
        conn.execute("UPDATE wp_novel_stories SET title = 'new' WHERE id = %s", (first,))
        assert await recount(pool, first, second) == Written(frozenset({second}), 1)
    assert stored(conn, first)[0] == 0
    assert (await recount(pool, first, second)).story_ids == {first, second}


async def test_only_the_rows_of_the_wanted_stories_are_read(pool: Pool, conn: PlainConnection) -> None:
    wanted, chapters, ratings = 20, 15, 7
    conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)"
        " SELECT 'a', seq, seq, 'T', UTC_TIMESTAMP(), UTC_TIMESTAMP() FROM seq_1_to_1000"
    )
    conn.execute(
        "INSERT INTO wp_novel_chapters (story_id, chapter_no, slug, title, is_published, deleted_at, created_at,"
        " updated_at) SELECT s.id, n.seq, n.seq, 'C', n.seq % 3 <> 0, IF(n.seq % 5 = 0, UTC_TIMESTAMP(), NULL),"
        " UTC_TIMESTAMP(), UTC_TIMESTAMP() FROM seq_1_to_15 n, wp_novel_stories s"
    )
    conn.execute(
        "INSERT INTO wp_novel_ratings (user_id, story_id, score, created_at, updated_at)"
        " SELECT n.seq, s.id, n.seq, UTC_TIMESTAMP(), UTC_TIMESTAMP() FROM seq_1_to_7 n, wp_novel_stories s"
    )
    visible = len([n for n in range(1, chapters + 1) if n % 3 and n % 5])
    ids = [row[0] for row in conn.fetch_all("SELECT id FROM wp_novel_stories WHERE id % 50 = 0")]
    assert len(ids) == wanted
    async with pool.reading() as reading:
        await story_counts.compute(reading, ids)  # once before, for what the server has to learn
        async with Reads(reading) as reads:
            counts = await story_counts.compute(reading, ids)
        assert {count.chapter_count for count in counts} == {visible}
        # Of each story the chapters that readers see and its ratings, and the entry after each.
        assert reads.entries <= wanted * (visible + ratings + 2)
        # Nothing but the list of ids and the sums, for each of the two statements.
        assert reads.rows <= 2 * (3 * wanted + 4)

    async def write(writing: Connection) -> Reads:
        async with Reads(writing) as reads:
            await story_counts.write(writing, counts)
        return reads

    reads = await pool.transaction(write)
    assert (reads.entries, reads.rows <= 2 * (3 * wanted + 4)) == (0, True)
