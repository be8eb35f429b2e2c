"""Rows of `wp_novel_stories` as a worker writes them.

Everyone who writes a story or its chapters locks the story's row first, and several in the order of their ids: so
nobody deadlocks, and of two updates of one story at the same time the second sees what the first wrote. A story that is
not there yet is made first, as a placeholder without content that no reader sees, so that it can be locked too.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from store.connection import Connection

Ref = tuple[str, str]
"""A story as its source knows it: source, and the id it has there."""

# No slug of a crawler begins so.
NOT_A_SLUG = "~"

# UNIQUE source_story, a point for each.
_FIND = """
    SELECT s.source, s.source_story_id, s.id
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (source VARCHAR(40) PATH '$[0]', ref VARCHAR(191) PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (source_story) ON s.source = w.source AND s.source_story_id = w.ref
"""
# Two who make the same story at once: the second waits for the first one's COMMIT, and then finds its row. Nobody sees
# it, because it is deleted; and it is ongoing, for a deletion may be all that is known of it until it comes.
_MAKE = """
    INSERT INTO wp_novel_stories
        (source, source_story_id, slug, title, status, created_at, updated_at, deleted_at)
    VALUES (%s, %s, %s, '', 1, %s, %s, %s) ON DUPLICATE KEY UPDATE id = id
"""
# PRIMARY, in the order of ids.
_LOCK = """
    SELECT s.id, s.deleted_at IS NULL AND s.status <> 0
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = w.id FOR UPDATE
"""
# PRIMARY.
_READ = """
    SELECT s.id, s.source, s.source_story_id, s.slug, s.title, s.title_original, s.author_name, s.status, s.cover_url,
        s.summary, s.language, s.updated_at_source, s.source_microsecond, s.deleted_at IS NOT NULL
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = w.id
"""
# UNIQUE source_slug.
_BY_SLUG = """
    SELECT s.source, s.slug, s.id, s.source_story_id, s.deleted_at IS NOT NULL
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (source VARCHAR(40) PATH '$[0]', slug VARCHAR(191) PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (source_slug) ON s.source = w.source AND s.slug = w.slug
"""
# PRIMARY.
_RENAME = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', slug VARCHAR(191) PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = w.id SET s.slug = w.slug
"""
_DELETE = """
    DELETE s FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = w.id
"""
# PRIMARY decides which row: each id is there.
_WRITE = """
    INSERT INTO wp_novel_stories
        (id, source, source_story_id, slug, title, title_original, author_name, status, cover_url, summary, language,
         search_text, updated_at_source, source_microsecond, published_at, created_at, updated_at, deleted_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE slug = VALUES(slug), title = VALUES(title), title_original = VALUES(title_original),
        author_name = VALUES(author_name), status = VALUES(status), cover_url = VALUES(cover_url),
        summary = VALUES(summary), language = VALUES(language), search_text = VALUES(search_text),
        updated_at_source = VALUES(updated_at_source), source_microsecond = VALUES(source_microsecond),
        published_at = COALESCE(published_at, VALUES(published_at)), updated_at = VALUES(updated_at),
        deleted_at = VALUES(deleted_at), cache_version = cache_version + 1
"""
# PRIMARY. The source has looked at it anew and found nothing new.
_REFRESH = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (
        id BIGINT UNSIGNED PATH '$[0]', at DATETIME PATH '$[1]', microsecond INT UNSIGNED PATH '$[2]'
    )) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = w.id
    SET s.updated_at_source = w.at, s.source_microsecond = w.microsecond
"""
# PRIMARY, in the order of ids; they are locked already. `is_news` is whether readers got something new to read.
_BUMP = """
    UPDATE JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', is_news TINYINT PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = w.id
    SET s.cache_version = s.cache_version + 1, s.updated_at = IF(w.is_news, %s, s.updated_at)
"""
_NOW = "SELECT UTC_TIMESTAMP(6)"


@dataclass(frozen=True, slots=True)
class StoryRow:
    id: int
    source: str
    ref: str
    slug: str
    title: str
    title_original: str | None
    author_name: str | None
    status: int
    cover_url: str | None
    summary: str | None
    language: str
    at: datetime | None
    """When the source changed it, to the microsecond; None: never heard of."""
    is_deleted: bool

    @property
    def is_placeholder(self) -> bool:
        return self.at is None and self.slug.startswith(NOT_A_SLUG)

    @property
    def is_visible(self) -> bool:
        return not self.is_deleted and self.status != 0


@dataclass(frozen=True, slots=True)
class SlugOwner:
    id: int
    ref: str
    is_deleted: bool


async def now(conn: Connection) -> datetime:
    """The database's time."""
    row = await conn.fetch_one(_NOW)
    assert row is not None
    moment: datetime = row[0]
    return moment


async def find(conn: Connection, refs: Sequence[Ref]) -> dict[Ref, int]:
    """The ids of those that exist."""
    rows = await conn.fetch_all(_FIND, (orjson.dumps(sorted(set(refs))).decode(),))
    return {(source, ref): story_id for source, ref, story_id in rows}


async def make(conn: Connection, refs: Sequence[Ref], *, at: datetime) -> None:
    """Make placeholders of stories that are not there."""
    whole = at.replace(microsecond=0)
    await conn.execute_many(
        _MAKE, [(source, ref, placeholder_slug(ref), whole, whole, whole) for source, ref in sorted(set(refs))]
    )


def placeholder_slug(ref: str) -> str:
    return NOT_A_SLUG + hashlib.sha256(ref.encode()).hexdigest()


async def lock(conn: Connection, ids: Sequence[int]) -> set[int]:
    """Lock stories until the end of the transaction; returns those that readers see."""
    rows = await conn.fetch_all(_LOCK, (orjson.dumps(sorted(set(ids))).decode(),))
    return {story_id for story_id, is_visible in rows if is_visible}


async def read(conn: Connection, ids: Sequence[int]) -> list[StoryRow]:
    rows = await conn.fetch_all(_READ, (orjson.dumps(sorted(set(ids))).decode(),))
    return [_row(*row) for row in rows]


async def by_slug(conn: Connection, slugs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], SlugOwner]:
    """Who has these slugs (source, slug)."""
    rows = await conn.fetch_all(_BY_SLUG, (orjson.dumps(sorted(set(slugs))).decode(),))
    return {(source, slug): SlugOwner(story_id, ref, bool(gone)) for source, slug, story_id, ref, gone in rows}


async def rename(conn: Connection, slugs: Sequence[tuple[int, str]]) -> None:
    if slugs:
        await conn.execute(_RENAME, (orjson.dumps(slugs).decode(),))


async def delete(conn: Connection, ids: Sequence[int]) -> None:
    """Delete placeholders that stay empty."""
    if ids:
        await conn.execute(_DELETE, (orjson.dumps(sorted(ids)).decode(),))


async def write(conn: Connection, rows: Sequence[StoryRow], search_texts: Sequence[str], *, at: datetime) -> None:
    """Write whole rows over those that are there, each with its words for search."""
    whole = at.replace(microsecond=0)
    await conn.execute_many(
        _WRITE,
        [
            (
                *(row.id, row.source, row.ref, row.slug, row.title, row.title_original, row.author_name, row.status),
                *(row.cover_url, row.summary, row.language, search_text),
                *(None if row.at is None else row.at.replace(microsecond=0), row.at.microsecond if row.at else 0),
                *(whole, whole, whole, whole if row.is_deleted else None),
            )
            for row, search_text in zip(rows, search_texts, strict=True)
        ],
    )


async def refresh(conn: Connection, times: Sequence[tuple[int, datetime]]) -> None:
    """Note when the source changed stories (id, time) of which nothing else changed."""
    if times:
        await conn.execute(_REFRESH, (times_json(times),))


async def bump(conn: Connection, stories: Sequence[tuple[int, bool]], *, at: datetime) -> None:
    """Make caches of these stories void (id, whether readers got something new)."""
    if stories:
        rows = [(story_id, int(is_news)) for story_id, is_news in sorted(stories)]
        await conn.execute(_BUMP, (orjson.dumps(rows).decode(), at.replace(microsecond=0)))


def _row(*values: Any) -> StoryRow:
    *known, whole, microsecond, is_deleted = values
    return StoryRow(*(*known, moment(whole, microsecond), bool(is_deleted)))


def times_json(times: Sequence[tuple[int, datetime]]) -> str:
    rows = [(row_id, at.strftime("%Y-%m-%d %H:%M:%S"), at.microsecond) for row_id, at in times]
    return orjson.dumps(rows).decode()


def moment(whole: datetime | None, microsecond: int) -> datetime | None:
    """A time that is stored in two columns: the specification's has no fraction."""
    return None if whole is None else whole.replace(microsecond=microsecond)
