"""The whole way of a chapter, on a database of its own: pushed over HTTP, queued, worked, there to be read.

Beside it, the same rows written by nothing but two connections, each in a process of its own.
"""

import asyncio
import contextlib
import functools
import hashlib
import itertools
import multiprocessing
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from multiprocessing.connection import Connection as Pipe
from typing import Any

from loadtests import place
from loadtests.bench import batches, door, own_database
from loadtests.bench.batches import Batch
from loadtests.bench.case import Bench, Reset, Side, Work
from loadtests.bench.door import Client, Door
from runtime import children
from runtime.children import Child, Command
from runtime.problems import Problem
from schema.connection import Connection, connect
from store import bodies
from worker import html

SUFFIX = "pipeline"
OUTPUT = place.DIRECTORY / "workers.log"
CLIENTS = 4
BARE_CONNECTIONS = 2
# In each call: enough that its beginning and end, where not everybody has something to do, count for little.
BATCHES_AT_ONCE = 40
# Each of another story, and with other texts; a sample that needs more begins again with the first.
DIFFERENT_BATCHES = 80
LOOK_SECONDS = 0.005
ANSWER_SECONDS = 120.0
NOW = datetime(2026, 1, 1)

_TABLES = (
    *("ingest_ready", "ingest_jobs", "ingest_payload_blobs", "ingest_requests", "nonce_replay", "events"),
    *("chapters", "chapter_content", "chapter_versions", "stories", "story_recount_queue", "ingest_minutes"),
)
_EMPTY = tuple(f"TRUNCATE TABLE wp_novel_{table}" for table in _TABLES)
_INSERT_STORY = """
    INSERT INTO wp_novel_stories
        (id, source, source_story_id, slug, title, status, updated_at_source, published_at, created_at, updated_at)
    VALUES (%s, %s, %s, %s, 'T', 1, %s, %s, %s, %s)
"""
_UNFINISHED = "SELECT COUNT(*) FROM wp_novel_ingest_requests FORCE INDEX (by_status) WHERE status < 2"
_FAILED = "SELECT last_error FROM wp_novel_ingest_requests WHERE status > 2 LIMIT 1"

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


@contextlib.contextmanager
def stage(bench: Bench) -> Iterator[Reset]:
    """The database, which each sample finds with stories and without chapters."""
    with own_database.made(bench, SUFFIX) as conn:
        yield functools.partial(_reset, conn)


def _reset(conn: Connection) -> None:
    for statement in _EMPTY:
        conn.execute(statement)
    rows = [
        (number + 1, batches.SOURCE, f"s{number:06}", f"s{number}", NOW, NOW, NOW, NOW)
        for number in range(DIFFERENT_BATCHES)
    ]
    with conn.raw.cursor() as cursor:
        cursor.executemany(_INSERT_STORY, rows)


# -- ours -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crew:
    """How many of us work."""

    api_processes: int = 1
    concurrency: int = 2


def ours(crew: Crew) -> Side:
    """A side that pushes new chapters over HTTP, and is done when all of them are in the tables."""

    @contextlib.asynccontextmanager
    async def side(bench: Bench) -> AsyncIterator[Work]:
        own = own_database.beside(bench, SUFFIX)
        prepared = batches.different(batches.texts(), batches.JSON, first=0, count=DIFFERENT_BATCHES)
        todo = itertools.cycle(prepared)
        with contextlib.ExitStack() as stack:
            served = stack.enter_context(door.opened(own, processes=crew.api_processes))
            stack.enter_context(_workers(own, served, crew))
            conn = stack.enter_context(connect(own.settings.database))
            clients = [stack.enter_context(served.client()) for _ in range(CLIENTS)]
            threads = stack.enter_context(ThreadPoolExecutor(CLIENTS))
            loop = asyncio.get_running_loop()

            async def work() -> int:
                waiting = deque(itertools.islice(todo, BATCHES_AT_ONCE))
                pushed = (loop.run_in_executor(threads, _push_all, client, waiting) for client in clients)
                items = sum(await asyncio.gather(*pushed))
                await _finished(conn)
                return items

            yield work

    return side


def _push_all(client: Client, waiting: deque[Batch]) -> int:
    items = 0
    with contextlib.suppress(IndexError):  # nothing is left
        while True:
            items += client.push(waiting.popleft())
    return items


async def _finished(conn: Connection) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while conn.fetch_all(_UNFINISHED)[0][0]:
        if time.monotonic() > deadline:
            raise Problem(f"the workers did not finish within {ANSWER_SECONDS:g} seconds. Their log is {OUTPUT}.")
        await asyncio.sleep(LOOK_SECONDS)
    if row := conn.fetch_one(_FAILED):
        raise Problem(f"a chapter of the benchmark failed: {row[0]}")


@contextlib.contextmanager
def _workers(bench: Bench, served: Door, crew: Crew) -> Iterator[Child]:
    OUTPUT.unlink(missing_ok=True)
    options = ("--concurrency", str(crew.concurrency))
    child = children.start(
        Command(
            name="the workers",
            argv=(sys.executable, "-P", "-m", "cli", "ingest-worker", "chapters", *options),
            environ=served.environ,
            output=OUTPUT,
        )
    )
    try:
        children.wait_until(lambda: "works" in child.last_output(), child)
        yield child
    finally:
        child.stop()


# -- the same rows, written ------------------------------------------------------------------------------


@functools.cache
def _bodies() -> tuple[tuple[bytes, bytes, bytes, int, int], ...]:
    """Of each text: as stored, its HTML as stored, its hash, its size, its words."""
    found = []
    for text in batches.texts():
        raw = text.encode()
        made = html.prepare(raw)
        stored = bodies.compress(raw, "gzip"), bodies.compress(made.html, "gzip")
        found.append((*stored, hashlib.sha256(raw).digest(), len(raw), made.words))
    return tuple(found)


def _rows(first: int, step: int) -> Iterator[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """Batches of new chapters without end; several writers take every `step`-th of them."""
    for story_id in itertools.count(first, step):
        chapters, contents = [], []
        for number, (raw, html_body, sha256, size, words) in enumerate(_bodies(), 1):
            chapter_id = story_id * batches.CHAPTERS + number
            title = f"Chương {number}: Gặp lại cố nhân"
            slug = f"chuong-{number}"
            chapters.append(
                (
                    *(chapter_id, story_id, f"c{number}", Decimal(number), slug, title, 1, words, NOW, NOW, 0, None),
                    *(NOW, NOW),
                )
            )
            contents.append((chapter_id, raw, html_body, sha256, size, "gzip", NOW, NOW))
        yield chapters, contents


def _write(bench: Bench, first: int, pipe: Pipe) -> None:
    """In a process of its own: write as many batches as it is told, again and again."""
    todo = _rows(first, BARE_CONNECTIONS)
    with connect(bench.settings.database) as conn, conn.raw.cursor() as cursor:
        pipe.send("ready")
        while count := pipe.recv():
            for _ in range(count):
                chapters, contents = next(todo)
                conn.raw.begin()
                cursor.executemany(bench.written(UPSERT_CHAPTERS), chapters)
                cursor.executemany(bench.written(UPSERT_CONTENTS), contents)
                conn.raw.commit()
            pipe.send(count)


@contextlib.contextmanager
def bare(bench: Bench) -> Iterator[Work]:
    own = own_database.beside(bench, SUFFIX)
    context = multiprocessing.get_context("spawn")
    pipes: list[Pipe] = []
    with contextlib.ExitStack() as stack:
        for number in range(BARE_CONNECTIONS):
            mine, theirs = context.Pipe()
            process = context.Process(target=_write, args=(own, number + 1, theirs), daemon=True)
            process.start()
            stack.callback(process.join, 10)
            stack.callback(mine.send, 0)
            pipes.append(mine)
        for pipe in pipes:
            pipe.recv()

        def work() -> int:
            share = BATCHES_AT_ONCE // BARE_CONNECTIONS
            for pipe in pipes:
                pipe.send(share)
            written: int = sum(pipe.recv() for pipe in pipes)
            return written * batches.CHAPTERS

        yield work
