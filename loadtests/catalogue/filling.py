"""Writes a generated catalogue into a database, once: a stamp in it says which catalogue is there.

The stamp says "unfinished" from before the first row is deleted until the last one is written, so a run that broke off
is begun anew. A database with stories but without any stamp is somebody's: it is left alone.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from loadtests.catalogue import rows, words
from loadtests.catalogue.rows import Row, StoryRows
from loadtests.catalogue.sizes import Sizes
from runtime import progress
from runtime.problems import Problem
from schema import drop, live, migrations, migrator, prefix
from schema.connection import Connection

# Raise it when the same sizes shall give other rows.
GENERATOR_VERSION = 2
STORIES_PER_COMMIT = 250
STATEMENT_BYTES = 4 << 20

# Reads UNIQUE option_name.
_STAMP = "SELECT option_value FROM wp_options WHERE option_name = 'novel_bench_catalogue'"
_REMEMBER = """
    INSERT INTO wp_options (option_name, option_value, autoload) VALUES ('novel_bench_catalogue', %s, 'no')
    ON DUPLICATE KEY UPDATE option_value = VALUES(option_value)
"""
_ANY_STORY = "SELECT id FROM wp_novel_stories LIMIT 1"
_EMPTY = (
    "TRUNCATE TABLE wp_novel_chapter_content",
    "TRUNCATE TABLE wp_novel_chapters",
    "TRUNCATE TABLE wp_novel_story_genres",
    "TRUNCATE TABLE wp_novel_story_aliases",
    "TRUNCATE TABLE wp_novel_genres",
    "TRUNCATE TABLE wp_novel_stories",
)
# A new table's statistics are guesses, and with them the plans; ANALYZE makes two runs alike.
_ANALYZE = "ANALYZE TABLE wp_novel_stories, wp_novel_story_genres, wp_novel_chapters, wp_novel_chapter_content"

_INSERT_GENRE = "INSERT INTO wp_novel_genres (id, slug, name, created_at) VALUES (%s, %s, %s, %s)"
_INSERT_STORY = """
    INSERT INTO wp_novel_stories
        (id, source, source_story_id, slug, title, title_original, author_name, status, cover_url, summary,
         chapter_count, word_count, popularity_score, rating_avg, rating_count, last_chapter_no, view_count,
         published_at, updated_at_source, created_at, updated_at, deleted_at, search_text)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_INSERT_ALIAS = "INSERT INTO wp_novel_story_aliases (story_id, alias) VALUES (%s, %s)"
_INSERT_STORY_GENRE = "INSERT INTO wp_novel_story_genres (story_id, genre_id) VALUES (%s, %s)"
_INSERT_CHAPTER = """
    INSERT INTO wp_novel_chapters
        (id, story_id, source_chapter_id, chapter_no, slug, title, is_published, word_count, read_count,
         published_at, updated_at_source, created_at, updated_at, deleted_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_INSERT_CONTENT = """
    INSERT INTO wp_novel_chapter_content
        (chapter_id, content_raw, content_html, content_hash, content_size, content_encoding, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""


def ensure_schema(conn: Connection, *, lock_seconds: int) -> None:
    """Bring the database to the newest schema, and to nothing else."""
    there = _stamp(conn)
    if there and there["schema"] != _schema():
        # A migration was edited before it landed, or another branch made these tables: migrating is not enough.
        _mark_unfinished(conn)
        drop.drop(conn, lock_seconds=lock_seconds)
    migrator.migrate(conn, lock_seconds=lock_seconds)


def ensure(conn: Connection, sizes: Sizes, *, lock_seconds: int) -> bool:
    """Bring the database to the newest schema and to this catalogue; says whether it had to be generated."""
    ensure_schema(conn, lock_seconds=lock_seconds)
    wanted, there = stamp(sizes), _stamp(conn)
    if there == wanted:
        return False
    if there is None and conn.fetch_one(_ANY_STORY):
        raise Problem(
            f"the database {conn.address.place} holds stories that the benchmark did not make."
            " Point NOVEL_DATABASE_URL elsewhere, or empty that database."
        )
    _mark_unfinished(conn)
    _fill(conn, sizes)
    conn.execute(_REMEMBER, (json.dumps(wanted),))
    return True


def stamp(sizes: Sizes) -> dict[str, Any]:
    """What tells one catalogue from another: its sizes, its seed, the generator and its words, the schema."""
    return {
        **asdict(sizes),
        "generator": GENERATOR_VERSION,
        "words": _digest(words.TEXT),
        "schema": _schema(),
    }


def _fill(conn: Connection, sizes: Sizes) -> None:
    for statement in _EMPTY:
        conn.execute(statement)
    _insert(conn, _INSERT_GENRE, rows.genre_rows())
    with progress.bar("Chapters generated", total=sizes.chapters) as step:
        for chunk in rows.chunks(rows.stories(sizes), stories=STORIES_PER_COMMIT):
            conn.raw.begin()
            _write(conn, chunk)
            conn.raw.commit()
            step(sum(len(story.chapters) for story in chunk))
    conn.fetch_all(_ANALYZE)


def _write(conn: Connection, chunk: list[StoryRows]) -> None:
    _insert(conn, _INSERT_STORY, [story.story for story in chunk])
    _insert(conn, _INSERT_ALIAS, [row for story in chunk for row in story.aliases])
    _insert(conn, _INSERT_STORY_GENRE, [row for story in chunk for row in story.genres])
    _insert(conn, _INSERT_CHAPTER, [row for story in chunk for row in story.chapters])
    _insert(conn, _INSERT_CONTENT, [row for story in chunk for row in story.contents])


def _insert(conn: Connection, sql: str, values: Sequence[Row]) -> None:
    with conn.raw.cursor() as cursor:
        cursor.max_stmt_length = STATEMENT_BYTES
        cursor.executemany(prefix.rewrite(sql, conn.table_prefix), values)


def _stamp(conn: Connection) -> dict[str, Any] | None:
    if not live.column_names(conn, conn.table("wp_options")):
        return None
    row = conn.fetch_one(_STAMP)
    found: dict[str, Any] | None = json.loads(row[0]) if row else None
    return found


def _mark_unfinished(conn: Connection) -> None:
    conn.execute(_REMEMBER, (json.dumps({"schema": _schema(), "unfinished": True}),))


def _schema() -> str:
    return _digest("\n".join(statement for m in migrations.available() for statement in m.statements))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
