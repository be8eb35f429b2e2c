"""Chapters as they are stored, for whoever wants to know whether a pushed one says anything new."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import orjson

from store.connection import Connection
from store.story_rows import moment

# A point for each: UNIQUE source_story, UNIQUE story_source_chapter, PRIMARY of the bodies.
_BY_REF = """
    SELECT w.place, c.chapter_no, c.slug, c.title, c.is_published, c.published_at, c.updated_at_source,
        c.source_microsecond, t.content_hash
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        place INT PATH '$[0]', story VARCHAR(191) PATH '$[1]', ref VARCHAR(191) PATH '$[2]'
    )) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (source_story) ON s.source = %s AND s.source_story_id = w.story
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (story_source_chapter)
        ON c.story_id = s.id AND c.source_chapter_id = w.ref
    STRAIGHT_JOIN wp_novel_chapter_content t FORCE INDEX (PRIMARY) ON t.chapter_id = c.id
    WHERE c.deleted_at IS NULL
"""
# The same by UNIQUE story_number, for sources that give their chapters no id.
_BY_NUMBER = """
    SELECT w.place, c.chapter_no, c.slug, c.title, c.is_published, c.published_at, c.updated_at_source,
        c.source_microsecond, t.content_hash
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        place INT PATH '$[0]', story VARCHAR(191) PATH '$[1]', number DECIMAL(10,2) PATH '$[2]'
    )) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (source_story) ON s.source = %s AND s.source_story_id = w.story
    STRAIGHT_JOIN wp_novel_chapters c FORCE INDEX (story_number) ON c.story_id = s.id AND c.chapter_no = w.number
    STRAIGHT_JOIN wp_novel_chapter_content t FORCE INDEX (PRIMARY) ON t.chapter_id = c.id
    WHERE c.deleted_at IS NULL
"""

Wanted = tuple[int, str, str | None, Decimal | None]
"""A place of the caller's, the story, the chapter's id, its number: the ids as the source has them."""


@dataclass(frozen=True, slots=True)
class Standing:
    number: Decimal
    slug: str
    title: str
    is_published: bool
    published_at: datetime | None
    at: datetime | None
    """When the source changed it, to the microsecond."""
    sha256: bytes | None


async def find(conn: Connection, source: str, wanted: Sequence[Wanted]) -> dict[int, Standing]:
    """Those that are there and not deleted, by their places."""
    by_ref = [(place, story, ref) for place, story, ref, _ in wanted if ref is not None]
    by_number = [(place, story, str(number)) for place, story, ref, number in wanted if ref is None]
    rows = []
    if by_ref:
        rows += await conn.fetch_all(_BY_REF, (orjson.dumps(by_ref).decode(), source))
    if by_number:
        rows += await conn.fetch_all(_BY_NUMBER, (orjson.dumps(by_number).decode(), source))
    return {
        place: Standing(number, slug, title, bool(is_published), published_at, moment(whole, microsecond), sha256)
        for place, number, slug, title, is_published, published_at, whole, microsecond, sha256 in rows
    }
