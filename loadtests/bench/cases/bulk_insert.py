"""Upserts of 300 chapters with their texts, one transaction each: what a worker does all day.

They go into copies of the two tables, with every index, which are emptied before each sample. So all samples begin
alike, and no purge of deleted rows runs into the next one.
"""

import contextlib
import functools
import itertools
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from random import Random

from loadtests.bench import drivers, pooled
from loadtests.bench.case import Bench, Case, Reset
from loadtests.bench.drivers import Batch
from loadtests.catalogue import prose
from schema.connection import connect

CHAPTERS_PER_TRANSACTION = 300
NOW = datetime(2026, 1, 1)

_CREATE = (
    "CREATE TABLE IF NOT EXISTS wp_novel_bench_chapters LIKE wp_novel_chapters",
    "CREATE TABLE IF NOT EXISTS wp_novel_bench_chapter_content LIKE wp_novel_chapter_content",
)
_EMPTY = ("TRUNCATE TABLE wp_novel_bench_chapters", "TRUNCATE TABLE wp_novel_bench_chapter_content")
_DROP = "DROP TABLE IF EXISTS wp_novel_bench_chapters, wp_novel_bench_chapter_content"

UPSERT_CHAPTERS = """
    INSERT INTO wp_novel_bench_chapters
        (id, story_id, source_chapter_id, chapter_no, slug, title, is_published, word_count,
         published_at, updated_at_source, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE title = VALUES(title), word_count = VALUES(word_count),
        updated_at_source = VALUES(updated_at_source), updated_at = VALUES(updated_at)
"""
UPSERT_CONTENTS = """
    INSERT INTO wp_novel_bench_chapter_content
        (chapter_id, content_raw, content_hash, content_size, content_encoding, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE content_raw = VALUES(content_raw), content_hash = VALUES(content_hash),
        content_size = VALUES(content_size), content_encoding = VALUES(content_encoding),
        updated_at = VALUES(updated_at)
"""


@functools.cache
def _bodies() -> tuple[prose.Body, ...]:
    """The texts of a batch, compressed once and for all: compressing is not what is measured."""
    random = Random(1)
    return tuple(prose.stored(prose.body(random)) for _ in range(CHAPTERS_PER_TRANSACTION))


def batches() -> Iterator[Batch]:
    """New chapters without end, a story's worth at a time."""
    bodies = _bodies()
    for story_id in itertools.count(1):
        chapters = [
            (
                story_id * CHAPTERS_PER_TRANSACTION + number,
                story_id,
                f"{story_id}-{number}",
                Decimal(number),
                f"chuong-{number}",
                f"Chương {number}: Gặp lại cố nhân",
                1,
                body.word_count,
                NOW,
                NOW,
                NOW,
                NOW,
            )
            for number, body in enumerate(bodies)
        ]
        contents = [
            (chapter[0], body.raw, body.sha256, body.size, "gzip", NOW, NOW)
            for chapter, body in zip(chapters, bodies, strict=True)
        ]
        yield [(UPSERT_CHAPTERS, chapters), (UPSERT_CONTENTS, contents)]


@contextlib.contextmanager
def stage(bench: Bench) -> Iterator[Reset]:
    with connect(bench.settings.database) as conn:

        def reset() -> None:
            for statement in _EMPTY:
                conn.execute(statement)

        for statement in _CREATE:
            conn.execute(statement)
        try:
            yield reset
        finally:
            conn.execute(_DROP)


CASE = Case(
    name="bulk_insert",
    title="300 chapters and their texts in a transaction, through the pool against bare pymysql",
    unit="chapters",
    ours=pooled.inserting(batches),
    bare=drivers.inserting(drivers.PYMYSQL, batches),
    target=1.0,
    needs_catalogue=False,
    stage=stage,
)
