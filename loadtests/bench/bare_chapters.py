"""The same rows as the pipeline leaves behind, written by nothing but two connections, each in a process of its own."""

import contextlib
import functools
import hashlib
import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from multiprocessing.connection import Connection as Pipe
from typing import Any

from loadtests.bench import batches, own_database, pipeline
from loadtests.bench.case import Bench, Side, Work
from schema.connection import connect
from store import bodies
from worker import html

CONNECTIONS = 2
NOW = datetime(2026, 1, 1)

UPSERT_CHAPTERS = """
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
UPSERT_CONTENTS = """
    INSERT INTO wp_novel_chapter_content
        (chapter_id, content_raw, content_html, content_hash, content_size, content_encoding, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE content_raw = VALUES(content_raw), content_html = VALUES(content_html),
        content_hash = VALUES(content_hash), content_size = VALUES(content_size),
        content_encoding = VALUES(content_encoding), updated_at = VALUES(updated_at)
"""

Pack = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Text:
    raw: bytes
    html: bytes
    sha256: bytes
    words: int


@functools.cache
def texts() -> tuple[Text, ...]:
    """The texts of a batch, as they came and as HTML."""
    found = []
    for text in batches.texts():
        raw = text.encode()
        made = html.prepare(raw)
        found.append(Text(raw, made.html, hashlib.sha256(raw).digest(), made.words))
    return tuple(found)


@functools.cache
def _packed(text: bytes) -> bytes:
    return bodies.compress(text, "gzip")


def _pack(text: bytes) -> bytes:
    return bodies.compress(text, "gzip")


def compressing(bench: Bench) -> contextlib.AbstractContextManager[Work]:
    """Two writers that are given texts, and write them compressed, as they are in the tables."""
    return _side(bench, _pack)


def of_ready_rows(bench: Bench) -> contextlib.AbstractContextManager[Work]:
    """Two writers whose rows are ready before the clock starts: compressed, hashed, counted."""
    return _side(bench, _packed)


COMPRESSING: Side = compressing
OF_READY_ROWS: Side = of_ready_rows


def _rows(first: int, pack: Pack) -> Iterator[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """Batches of new chapters without end; each writer takes every other one."""
    for story_id in itertools.count(first, CONNECTIONS):
        chapters, contents = [], []
        for number, text in enumerate(texts(), 1):
            chapter_id = story_id * batches.CHAPTERS + number
            title = f"Chương {number}: Gặp lại cố nhân"
            named = (chapter_id, story_id, f"c{number}", Decimal(number), f"chuong-{number}", title)
            chapters.append((*named, 1, text.words, NOW, NOW, 0, None, NOW, NOW))
            stored = pack(text.raw), pack(text.html)
            contents.append((chapter_id, *stored, text.sha256, len(text.raw), "gzip", NOW, NOW))
        yield chapters, contents


def _write(bench: Bench, first: int, pack: Pack, pipe: Pipe) -> None:
    """In a process of its own: write as many batches as it is told, again and again."""
    todo = _rows(first, pack)
    next(todo)  # whatever has to be made only once is made now
    with connect(bench.settings.database) as conn, conn.raw.cursor() as cursor:
        pipe.send(0)
        while count := pipe.recv():
            for _ in range(count):
                chapters, contents = next(todo)
                conn.raw.begin()
                cursor.executemany(bench.written(UPSERT_CHAPTERS), chapters)
                cursor.executemany(bench.written(UPSERT_CONTENTS), contents)
                conn.raw.commit()
            pipe.send(count)


@contextlib.contextmanager
def _side(bench: Bench, pack: Pack) -> Iterator[Work]:
    own = own_database.beside(bench, pipeline.SUFFIX)
    context = multiprocessing.get_context("spawn")
    pipes: list[Pipe] = []
    with contextlib.ExitStack() as stack:
        for number in range(CONNECTIONS):
            mine, theirs = context.Pipe()
            process = context.Process(target=_write, args=(own, number + 1, pack, theirs), daemon=True)
            process.start()
            stack.callback(process.join, 10)
            stack.callback(mine.send, 0)
            pipes.append(mine)
        for pipe in pipes:
            pipe.recv()

        def work() -> int:
            for pipe in pipes:
                pipe.send(pipeline.BATCHES_AT_ONCE // CONNECTIONS)
            written: int = sum(pipe.recv() for pipe in pipes)
            return written * batches.CHAPTERS

        yield work
