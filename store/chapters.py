"""Rows of `wp_novel_chapters` as a worker writes them. The story's row is locked before: see `story_rows`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson

from store.connection import Connection
from store.story_rows import moment, times_json

# Three points for each: UNIQUE story_source_chapter, story_number, story_slug. All read from the index alone.
_FIND = """
    SELECT a.id, b.id, c.id
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        story_id BIGINT UNSIGNED PATH '$[0]', ref VARCHAR(191) PATH '$[1]', number DECIMAL(10,2) PATH '$[2]',
        slug VARCHAR(191) PATH '$[3]'
    )) w
    LEFT JOIN wp_novel_chapters a FORCE INDEX (story_source_chapter)
        ON a.story_id = w.story_id AND a.source_chapter_id = w.ref
    LEFT JOIN wp_novel_chapters b FORCE INDEX (story_number) ON b.story_id = w.story_id AND b.chapter_no = w.number
    LEFT JOIN wp_novel_chapters c FORCE INDEX (story_slug) ON c.story_id = w.story_id AND c.slug = w.slug
"""
# PRIMARY of both.
_READ = """
    SELECT c.id, c.story_id, c.source_chapter_id, c.chapter_no, c.slug, c.title, c.is_published, c.word_count,
        c.published_at, c.updated_at_source, c.source_microsecond, c.deleted_at IS NOT NULL, t.content_hash
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (PRIMARY) ON c.id = w.id
    LEFT JOIN wp_novel_chapter_content t ON t.chapter_id = c.id
"""
# UNIQUE story_number.
_IDS = """
    SELECT c.story_id, c.chapter_no, c.id
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (story_id BIGINT UNSIGNED PATH '$[0]', number DECIMAL(10,2) PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (story_number)
        ON c.story_id = w.story_id AND c.chapter_no = w.number
"""
# UNIQUE story_number, the lowest entry of each story. MIN() here would read all of them.
_LOWEST = """
    SELECT w.id, (
        SELECT c.chapter_no FROM wp_novel_chapters c FORCE INDEX (story_number)
        WHERE c.story_id = w.id ORDER BY c.chapter_no LIMIT 1
    ) FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
"""
_INSERT = """
    INSERT INTO wp_novel_chapters
        (story_id, source_chapter_id, chapter_no, slug, title, is_published, word_count, published_at,
         updated_at_source, source_microsecond, deleted_at, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
# PRIMARY decides which row: each id is there, and no other row has its number, slug or source's id.
_WRITE = """
    INSERT INTO wp_novel_chapters
        (id, story_id, source_chapter_id, chapter_no, slug, title, is_published, word_count, published_at,
         updated_at_source, source_microsecond, deleted_at, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE source_chapter_id = VALUES(source_chapter_id), chapter_no = VALUES(chapter_no),
        slug = VALUES(slug), title = VALUES(title), is_published = VALUES(is_published),
        word_count = VALUES(word_count), published_at = VALUES(published_at),
        updated_at_source = VALUES(updated_at_source), source_microsecond = VALUES(source_microsecond),
        deleted_at = VALUES(deleted_at), updated_at = VALUES(updated_at)
"""
# PRIMARY.
_MOVE = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (
        id BIGINT UNSIGNED PATH '$[0]', number DECIMAL(10,2) PATH '$[1]', slug VARCHAR(191) PATH '$[2]'
    )) w
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (PRIMARY) ON c.id = w.id
    SET c.chapter_no = w.number, c.slug = w.slug
"""
# PRIMARY.
_HIDE = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (PRIMARY) ON c.id = w.id
    SET c.deleted_at = %s, c.updated_at = %s
"""
# PRIMARY.
_REFRESH = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (
        id BIGINT UNSIGNED PATH '$[0]', at DATETIME PATH '$[1]', microsecond INT UNSIGNED PATH '$[2]'
    )) w
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (PRIMARY) ON c.id = w.id
    SET c.updated_at_source = w.at, c.source_microsecond = w.microsecond
"""


@dataclass(frozen=True, slots=True)
class ChapterRow:
    id: int
    """0 for one that is not there yet."""
    story_id: int
    ref: str | None
    """As the source names it."""
    number: Decimal
    slug: str
    title: str
    is_published: bool
    word_count: int
    published_at: datetime | None
    at: datetime | None
    """When the source changed it, to the microsecond."""
    is_deleted: bool
    sha256: bytes | None
    """Of its body, if it has one."""

    @property
    def is_visible(self) -> bool:
        return self.is_published and not self.is_deleted


Wanted = tuple[int, str | None, Decimal | None, str | None]
"""A chapter by what can identify it or stand in its way: story, source's id, number, slug."""


async def find(conn: Connection, wanted: Sequence[Wanted]) -> list[ChapterRow]:
    """Every row that has one of these source's ids, numbers or slugs within its story."""
    values = [(story, ref, None if number is None else str(number), slug) for story, ref, number, slug in wanted]
    rows = await conn.fetch_all(_FIND, (orjson.dumps(values).decode(),))
    ids = sorted({chapter_id for row in rows for chapter_id in row if chapter_id is not None})
    if not ids:
        return []
    return [_row(*row) for row in await conn.fetch_all(_READ, (orjson.dumps(ids).decode(),))]


async def ids(conn: Connection, numbers: Sequence[tuple[int, Decimal]]) -> dict[tuple[int, Decimal], int]:
    """The ids of chapters, by story and number."""
    values = orjson.dumps([(story_id, str(number)) for story_id, number in numbers]).decode()
    return {(story, number): chapter_id for story, number, chapter_id in await conn.fetch_all(_IDS, (values,))}


async def lowest_numbers(conn: Connection, story_ids: Collection[int]) -> dict[int, Decimal]:
    """The lowest number in each of these stories, 0 in one without chapters."""
    if not story_ids:
        return {}
    rows = await conn.fetch_all(_LOWEST, (orjson.dumps(sorted(story_ids)).decode(),))
    return {story_id: number if number is not None else Decimal(0) for story_id, number in rows}


async def insert(conn: Connection, rows: Sequence[ChapterRow], *, at: datetime) -> None:
    if rows:
        await conn.execute_many(_INSERT, [_values(row, at) for row in rows])


async def write(conn: Connection, rows: Sequence[ChapterRow], *, at: datetime) -> None:
    """Write whole rows over those that are there."""
    if rows:
        await conn.execute_many(_WRITE, [(row.id, *_values(row, at)) for row in rows])


async def move(conn: Connection, moves: Sequence[tuple[int, Decimal, str]]) -> None:
    """Give chapters (id) other numbers and slugs."""
    if moves:
        rows = [(chapter_id, str(number), slug) for chapter_id, number, slug in sorted(moves)]
        await conn.execute(_MOVE, (orjson.dumps(rows).decode(),))


async def hide(conn: Connection, chapter_ids: Sequence[int], *, at: datetime) -> None:
    """Delete chapters for now: the next that their source says of them brings them back."""
    if chapter_ids:
        whole = at.replace(microsecond=0)
        await conn.execute(_HIDE, (orjson.dumps(sorted(chapter_ids)).decode(), whole, whole))


async def refresh(conn: Connection, times: Sequence[tuple[int, datetime]]) -> None:
    """Note when the source changed chapters (id, time) of which nothing else changed."""
    if times:
        await conn.execute(_REFRESH, (times_json(times),))


def _row(*values: Any) -> ChapterRow:
    *known, is_published, word_count, published_at, whole, microsecond, is_deleted, sha256 = values
    rest = (bool(is_published), word_count, published_at, moment(whole, microsecond), bool(is_deleted), sha256)
    return ChapterRow(*(*known, *rest))


def _values(row: ChapterRow, at: datetime) -> tuple[object, ...]:
    whole = at.replace(microsecond=0)
    return (
        *(row.story_id, row.ref, row.number, row.slug, row.title, int(row.is_published), row.word_count),
        row.published_at,
        *(None if row.at is None else row.at.replace(microsecond=0), row.at.microsecond if row.at else 0),
        *(whole if row.is_deleted else None, whole, whole),
    )
