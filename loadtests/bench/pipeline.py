"""The whole way of a chapter, on a database of its own: pushed over HTTP, queued, worked, there to be read."""

import asyncio
import contextlib
import functools
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from loadtests import place
from loadtests.bench import batches, door, own_database
from loadtests.bench.batches import Batch
from loadtests.bench.case import Bench, Reset
from loadtests.bench.door import Client, Door
from runtime import children
from runtime.children import Child, Command
from runtime.problems import Problem
from schema.connection import Connection, connect

SUFFIX = "pipeline"
OUTPUT = place.DIRECTORY / "workers.log"
CLIENTS = 4
# Pushed in one go: enough that its beginning and end, where not everybody has something to do, count for little.
BATCHES_AT_ONCE = 40
# Stories that are there, each for a batch.
STORIES = 2 * BATCHES_AT_ONCE
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


@contextlib.contextmanager
def stage(bench: Bench) -> Iterator[Reset]:
    """The database, which each sample finds with stories and without chapters."""
    with own_database.made(bench, SUFFIX) as conn:
        yield functools.partial(reset, conn)


def reset(conn: Connection) -> None:
    for statement in _EMPTY:
        conn.execute(statement)
    rows = [
        (number + 1, batches.SOURCE, f"s{number:06}", f"s{number}", NOW, NOW, NOW, NOW) for number in range(STORIES)
    ]
    with conn.raw.cursor() as cursor:
        cursor.executemany(_INSERT_STORY, rows)


def new_chapters(count: int = BATCHES_AT_ONCE) -> list[Batch]:
    """Batches of different stories with different texts."""
    return batches.different(batches.texts(), batches.JSON, first=0, count=count)


def unfinished(conn: Connection) -> int:
    """Batches that are not in the tables yet."""
    return int(conn.fetch_all(_UNFINISHED)[0][0])


async def finished(conn: Connection, *, down_to: int = 0) -> None:
    """Wait until no more than so many batches are not in the tables."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while unfinished(conn) > down_to:
        if time.monotonic() > deadline:
            raise Problem(f"the workers did not finish within {ANSWER_SECONDS:g} seconds. Their log is {OUTPUT}.")
        await asyncio.sleep(LOOK_SECONDS)
    if row := conn.fetch_one(_FAILED):
        raise Problem(f"an item of the benchmark failed: {row[0]}")


@dataclass(frozen=True, slots=True)
class Crew:
    """How many of us work."""

    api_processes: int = 1
    concurrency: int = 2


class Line:
    """The running services, and clients that push to them."""

    def __init__(self, conn: Connection, served: Door, clients: Sequence[Client], threads: ThreadPoolExecutor) -> None:
        self._conn = conn
        self._clients = clients
        self._threads = threads
        self.served = served

    async def push(self, todo: Sequence[Batch]) -> int:
        """Push batches with all clients at a time; returns how many items were accepted."""
        waiting = deque(todo)
        loop = asyncio.get_running_loop()
        pushed = (loop.run_in_executor(self._threads, _push_all, client, waiting) for client in self._clients)
        return sum(await asyncio.gather(*pushed))

    async def finished(self, *, down_to: int = 0) -> None:
        await finished(self._conn, down_to=down_to)

    def reset(self) -> None:
        reset(self._conn)


@contextlib.asynccontextmanager
async def running(bench: Bench, crew: Crew, *, with_workers: bool = True) -> AsyncIterator[Line]:
    """Services on the database of their own, which `stage` has made."""
    own = own_database.beside(bench, SUFFIX)
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(door.opened(own, processes=crew.api_processes))
        if with_workers:
            stack.enter_context(workers(served, crew))
        conn = stack.enter_context(connect(own.settings.database))
        clients = [stack.enter_context(served.client()) for _ in range(CLIENTS)]
        threads = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        yield Line(conn, served, clients, threads)


@contextlib.contextmanager
def workers(served: Door, crew: Crew) -> Iterator[Child]:
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
        children.wait_until(lambda: " works" in child.last_output(), child)
        yield child
    finally:
        child.stop()


def _push_all(client: Client, waiting: deque[Batch]) -> int:
    items = 0
    with contextlib.suppress(IndexError):  # nothing is left
        while True:
            items += client.push(waiting.popleft())
    return items
