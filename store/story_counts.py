"""What a story's row says about its chapters and ratings: computed from them, and written.

Nobody else writes these columns. A count is read without locks; it is written to the rows that nobody else has locked
just then, so that it waits for no transaction that works on a story, and none waits for it longer than one statement.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

import orjson

from store.connection import Connection, Row

# What the columns hold.
MAX_WORDS = 2**32 - 1
MAX_POPULARITY = Decimal("9999999999.9999")

_PER_CHAPTER = Decimal("0.3")
_PER_WORD = Decimal("0.2") / 10000
_PER_RATING_POINT = Decimal("0.5")
_HUNDREDTH = Decimal("0.01")
_TEN_THOUSANDTH = Decimal("0.0001")

# PRIMARY of stories, and of each story's chapters KEY list_number, forced: those that readers see, and no others.
_CHAPTERS = """
    SELECT s.id, COUNT(c.id), COALESCE(SUM(c.word_count), 0), MAX(c.chapter_no)
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = wanted.id
    LEFT JOIN wp_novel_chapters c FORCE INDEX (list_number)
        ON c.story_id = s.id AND c.is_published = 1 AND c.deleted_at IS NULL
    GROUP BY s.id
"""
# KEY story_score alone. Other scores than 1 to 10 are no ratings.
_RATINGS = """
    SELECT r.story_id, COUNT(r.score), SUM(r.score)
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_ratings r FORCE INDEX (story_score) ON r.story_id = wanted.id AND r.score BETWEEN 1 AND 10
    GROUP BY r.story_id
"""
# PRIMARY, a point for each id. Leaves out what others have locked.
_LOCK_FREE = """
    SELECT s.id, s.chapter_count, s.word_count, s.last_chapter_no, s.rating_avg, s.rating_count, s.popularity_score
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = wanted.id
    FOR UPDATE SKIP LOCKED
"""
# PRIMARY.
_LOCK = "SELECT id FROM wp_novel_stories WHERE id = %s FOR UPDATE"
# PRIMARY, a point for each id, in their order. updated_at stays: it says when readers got something new to read.
_WRITE = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (
        id BIGINT UNSIGNED PATH '$.id', chapter_count INT UNSIGNED PATH '$.chapters',
        word_count INT UNSIGNED PATH '$.words', last_chapter_no DECIMAL(10,2) PATH '$.last',
        rating_avg DECIMAL(4,2) PATH '$.rating', rating_count INT UNSIGNED PATH '$.ratings',
        popularity_score DECIMAL(14,4) PATH '$.popularity'
    )) new
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = new.id
    SET s.chapter_count = new.chapter_count, s.word_count = new.word_count, s.last_chapter_no = new.last_chapter_no,
        s.rating_avg = new.rating_avg, s.rating_count = new.rating_count, s.popularity_score = new.popularity_score,
        s.cache_version = s.cache_version + 1
"""


@dataclass(frozen=True, slots=True)
class Counts:
    story_id: int
    chapter_count: int
    word_count: int
    last_chapter_no: Decimal | None
    rating_avg: Decimal | None
    rating_count: int
    popularity_score: Decimal


@dataclass(frozen=True, slots=True)
class Written:
    story_ids: frozenset[int]
    """Whose rows now say what was computed."""
    changed: int
    """How many of them said something else before."""


def popularity(*, chapter_count: int, word_count: int, rating_avg: Decimal | None, rating_count: int) -> Decimal:
    """The score of §10, from the values in the story's row: whoever reads a row can compute it."""
    rated = (rating_avg or Decimal(0)) * rating_count
    exact = chapter_count * _PER_CHAPTER + word_count * _PER_WORD + rated * _PER_RATING_POINT
    return min(exact.quantize(_TEN_THOUSANDTH, ROUND_HALF_UP), MAX_POPULARITY)


def counted(
    story_id: int,
    *,
    chapter_count: int,
    word_count: int,
    last_chapter_no: Decimal | None,
    rating_count: int,
    rating_sum: int,
) -> Counts:
    """What the row of a story with these sums has to say."""
    words = min(word_count, MAX_WORDS)
    average = (Decimal(rating_sum) / rating_count).quantize(_HUNDREDTH, ROUND_HALF_UP) if rating_count else None
    score = popularity(chapter_count=chapter_count, word_count=words, rating_avg=average, rating_count=rating_count)
    return Counts(story_id, chapter_count, words, last_chapter_no, average, rating_count, score)


async def compute(conn: Connection, story_ids: Collection[int]) -> list[Counts]:
    """The counts of those of these stories that exist, in the order of their ids. Changes and locks nothing."""
    wanted = (_json(sorted(set(story_ids))),)
    chapters = await conn.fetch_all(_CHAPTERS, wanted)
    ratings = {
        story_id: (int(count), int(points)) for story_id, count, points in await conn.fetch_all(_RATINGS, wanted)
    }
    return [_counts(row, *ratings.get(row[0], (0, 0))) for row in sorted(chapters, key=lambda row: int(row[0]))]


async def lock(conn: Connection, story_id: int) -> bool:
    """Wait until nobody else works on this story's row, and keep it until COMMIT. False: there is no such story."""
    return await conn.fetch_one(_LOCK, (story_id,)) is not None


async def write(conn: Connection, counts: Sequence[Counts]) -> Written:
    """Write the counts of those stories whose rows are there and not locked by others."""
    if not counts:
        return Written(frozenset(), 0)
    ordered = sorted(counts, key=lambda count: count.story_id)
    rows = await conn.fetch_all(_LOCK_FREE, (_json([count.story_id for count in ordered]),))
    stored = {row[0]: Counts(*row) for row in rows}
    changed = [count for count in ordered if count.story_id in stored and count != stored[count.story_id]]
    if changed:
        await conn.execute(_WRITE, (_json([_plain(count) for count in changed]),))
    return Written(frozenset(stored), len(changed))


def _counts(chapters: Row, rating_count: int, rating_sum: int) -> Counts:
    story_id, chapter_count, word_count, last_chapter_no = chapters
    return counted(
        int(story_id),
        chapter_count=int(chapter_count),
        word_count=int(word_count),
        last_chapter_no=last_chapter_no,
        rating_count=rating_count,
        rating_sum=rating_sum,
    )


def _plain(counts: Counts) -> dict[str, int | str]:
    """For JSON_TABLE. Decimals are text, which stays exact; what is left out is NULL."""
    fields: dict[str, int | Decimal | None] = {
        "id": counts.story_id,
        "chapters": counts.chapter_count,
        "words": counts.word_count,
        "last": counts.last_chapter_no,
        "rating": counts.rating_avg,
        "ratings": counts.rating_count,
        "popularity": counts.popularity_score,
    }
    return {
        name: str(value) if isinstance(value, Decimal) else value for name, value in fields.items() if value is not None
    }


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
