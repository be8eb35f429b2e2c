"""Stories with chapters and ratings, what their rows say, and how many rows a statement has read."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from schema.connection import Connection as PlainConnection
from store.connection import Connection

_NEW_STORY = """
    INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)
    VALUES ('truyen-a', %s, %s, 'T', '2026-01-01', '2026-01-01')
"""
_NEW_CHAPTER = """
    INSERT INTO wp_novel_chapters
        (story_id, chapter_no, slug, title, word_count, is_published, deleted_at, created_at, updated_at)
    VALUES (%s, %s, %s, 'C', %s, %s, %s, '2026-01-01', '2026-01-01')
"""
_NEW_RATING = """
    INSERT INTO wp_novel_ratings (user_id, story_id, score, created_at, updated_at)
    VALUES (%s, %s, %s, '2026-01-01', '2026-01-01')
"""
_COUNTS = """
    SELECT chapter_count, word_count, last_chapter_no, rating_avg, rating_count, popularity_score
    FROM wp_novel_stories WHERE id = %s
"""


@dataclass(frozen=True)
class Chapter:
    number: Decimal
    words: int = 0
    is_published: bool = True
    is_deleted: bool = False


def make_story(conn: PlainConnection, *, chapters: Iterable[Chapter] = (), scores: Sequence[int] = ()) -> int:
    name = f"s{secrets.randbits(60)}"  # hypothesis resets random
    conn.execute(_NEW_STORY, (name, name))
    story_id = int(conn.fetch_all("SELECT LAST_INSERT_ID()")[0][0])
    for chapter in chapters:
        add_chapter(conn, story_id, chapter)
    for user_id, score in enumerate(scores, 1):
        conn.execute(_NEW_RATING, (user_id, story_id, score))
    return story_id


def make_stories(conn: PlainConnection, count: int) -> list[int]:
    """Stories of one chapter of 100 words each."""
    with conn.transaction():
        return [make_story(conn, chapters=[Chapter(Decimal(1), 100)]) for _ in range(count)]


def add_chapter(conn: PlainConnection, story_id: int, chapter: Chapter) -> None:
    deleted_at = "2026-01-02" if chapter.is_deleted else None
    slug = f"chuong-{chapter.number}"
    values = (story_id, chapter.number, slug, chapter.words, int(chapter.is_published), deleted_at)
    conn.execute(_NEW_CHAPTER, values)


def modelled(chapters: Iterable[Chapter], scores: Sequence[int]) -> tuple[Any, ...]:
    """What the row of a story has to say, in the simplest way."""
    seen = [chapter for chapter in chapters if chapter.is_published and not chapter.is_deleted]
    words = min(sum(chapter.words for chapter in seen), 4294967295)
    last = max((chapter.number for chapter in seen), default=None)
    rating = (Decimal(sum(scores)) / len(scores)).quantize(Decimal("0.01"), ROUND_HALF_UP) if scores else None
    popularity = (
        len(seen) * Decimal("0.3")
        + Decimal(words) / 10000 * Decimal("0.2")
        + (rating or 0) * len(scores) * Decimal("0.5")
    )
    return len(seen), words, last, rating, len(scores), popularity.quantize(Decimal("0.0001"), ROUND_HALF_UP)


def stored(conn: PlainConnection, story_id: int) -> tuple[Any, ...]:
    return conn.fetch_all(_COUNTS, (story_id,))[0]


def cache_version(conn: PlainConnection, story_id: int) -> int:
    return int(conn.fetch_all("SELECT cache_version FROM wp_novel_stories WHERE id = %s", (story_id,))[0][0])


def make_due(conn: PlainConnection) -> None:
    """As if the window had passed."""
    conn.execute("UPDATE wp_novel_story_recount_queue SET next_run_at = UTC_TIMESTAMP() WHERE locked_at IS NULL")


def expire_claims(conn: PlainConnection, *, seconds: int = 3600) -> None:
    """As if all that is claimed had been claimed so much earlier."""
    conn.execute(
        "UPDATE wp_novel_story_recount_queue SET locked_at = locked_at - INTERVAL %s SECOND,"
        " next_run_at = next_run_at - INTERVAL %s SECOND WHERE locked_at IS NOT NULL",
        (seconds, seconds),
    )


def queued(conn: PlainConnection) -> dict[int, int]:
    """The touch counts of what is in the queue."""
    return dict(conn.fetch_all("SELECT story_id, touch_count FROM wp_novel_story_recount_queue"))


class Reads:
    """Counts what the server reads for one connection: index entries and rows, of tables and of its own scratch."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._before: dict[str, int] = {}
        self.entries = 0
        """Entries of indexes that were walked over."""
        self.rows = 0
        """Rows of tables that were read one after the other, the server's own temporary ones included."""

    async def __aenter__(self) -> "Reads":
        self._before = await self._status()
        return self

    async def __aexit__(self, *_: object) -> None:
        after = await self._status()
        looking = await self._status()  # looking reads too: the same each time
        read = {name: 2 * after[name] - self._before[name] - looking[name] for name in after}
        self.entries = sum(read[f"Handler_read_{way}"] for way in ("first", "last", "next", "prev"))
        self.rows = sum(
            read[f"Handler_read_{way}"] for way in ("rnd", "rnd_next", "rnd_deleted") if f"Handler_read_{way}" in read
        )

    async def _status(self) -> dict[str, int]:
        rows = await self._conn.fetch_all("SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'")
        return {name: int(value) for name, value in rows}
