"""Items as the door makes them, applied in a transaction as a worker's loop applies them, but without the queue."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ingest import chapters as chapter_items
from ingest import stories as story_items
from schema.connection import Connection as PlainConnection
from store import errors, events, recounts
from store.connection import Connection
from store.errors import ServerRefused
from store.jobs import Job
from store.payloads import AnyFrame, ChapterFrame, StoryFrame
from store.pool import Pool
from store.units import Unit
from worker.chapters import Chapters
from worker.handler import Applied, Done, GiveUp, Handler, Outcome
from worker.stories import Stories

SOURCE = "truyen-a"
START = datetime(2026, 1, 1, tzinfo=UTC)
STORIES = Stories()
# Looks, a hundredth of a second apart, after which a statement that still runs is taken to wait for a lock.
LOOKS = 5

_numbers = itertools.count(1)

_RUNNING = """
    SELECT ID, INFO FROM information_schema.PROCESSLIST
    WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND COMMAND IN ('Query', 'Execute')
"""


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def story(ref: str = "s1", time: float = 0, **fields: Any) -> StoryFrame:
    """A story as its source has it at a time; optional fields only where they are named."""
    known = {"source_story_id": ref, "updated_at_source": at(time), "slug": f"truyen-{ref}", "title": f"Truyện {ref}"}
    return story_items.frame(known | fields)


def no_story(ref: str = "s1", time: float = 0) -> StoryFrame:
    """A story that was deleted."""
    return story_items.deletion({"source_story_id": ref, "updated_at_source": at(time)})


def chapter(ref: str | None = None, number: float = 1, time: float = 0, **fields: Any) -> ChapterFrame:
    """A chapter of the story s1 as its source has it at a time."""
    known: dict[str, Any] = {
        "source_story_id": "s1",
        "updated_at_source": at(time),
        "source_chapter_id": ref,
        "chapter_no": number,
        "slug": f"chuong-{number}".replace(".", "-"),
        "title": f"Chương {number}",
        "content_raw": "Ngày xưa có một người.",
    }
    encoding = fields.pop("encoding", "gzip")
    frame = chapter_items.packed(chapter_items.frame(known | fields), encoding=encoding)
    assert isinstance(frame, ChapterFrame)
    return frame


def no_chapter(ref: str | None = None, number: float | None = None, time: float = 0, **fields: Any) -> ChapterFrame:
    """A chapter that was deleted."""
    known = {
        "source_story_id": "s1",
        "updated_at_source": at(time),
        "source_chapter_id": ref,
        "chapter_no": number,
    }
    return chapter_items.deletion(known | fields)


def job(frame: AnyFrame | None, *, source: str = SOURCE) -> Job:
    number = next(_numbers)
    job_type = "stories_bulk" if isinstance(frame, StoryFrame) else "chapters_bulk"
    unit = Unit(number, job_type, source, "request", number, 0, 0, 1, 100, 0, 0, START, START)
    return Job(number, unit, 0, 100, frame)


async def apply(
    pool: Pool,
    handler: Handler,
    *frames: AnyFrame | None,
    source: str = SOURCE,
    before_commit: Callable[[], Awaitable[object]] | None = None,
) -> Applied:
    """Apply items as one set; `before_commit` is waited for with all of it done but the COMMIT."""
    jobs = [job(frame, source=source) for frame in frames]
    await handler.prepare(pool, jobs)

    async def work(conn: Connection) -> Applied:
        applied = await handler.apply(conn, jobs)
        if before_commit:
            await before_commit()
        await recounts.touch(conn, applied.touched, window_seconds=60)
        await events.append(conn, applied.events)
        return applied

    try:
        applied = await pool.transaction(work)
    except ServerRefused as error:
        if not errors.is_duplicate(error):
            raise
        applied = await pool.transaction(work)  # as the loop does, which then looks for the item that did it
    await handler.committed(pool, applied.outcomes)
    applied.outcomes.sort(key=lambda outcome: outcome.job.id)
    return applied


async def push_stories(pool: Pool, *frames: StoryFrame, source: str = SOURCE) -> list[str]:
    return said(await apply(pool, STORIES, *frames, source=source))


async def push_chapters(pool: Pool, *frames: ChapterFrame, source: str = SOURCE, versions: int = 5) -> list[str]:
    return said(await apply(pool, Chapters(max_versions=versions), *frames, source=source))


def said(applied: Applied) -> list[str]:
    """What became of each item, in the order of the batch: done, stale, or the code of an error."""
    return [_word(outcome) for outcome in applied.outcomes]


def _word(outcome: Outcome) -> str:
    if isinstance(outcome, Done):
        return "stale" if outcome.is_stale else "done"
    return f"{'failed' if isinstance(outcome, GiveUp) else 'waits'}: {outcome.code}"


class Paused:
    """A transaction that has done its work and waits, with all its locks, until it may COMMIT."""

    def __init__(self, pool: Pool, handler: Handler, *frames: AnyFrame) -> None:
        self._reached = asyncio.Event()
        self._go_on = asyncio.Event()
        self._task = asyncio.create_task(apply(pool, handler, *frames, before_commit=self._pause))

    async def __aenter__(self) -> "Paused":
        reached = asyncio.create_task(self._reached.wait())
        async with asyncio.timeout(20):
            await asyncio.wait([reached, self._task], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._go_on.set()
        await self._task

    async def commit(self) -> list[str]:
        self._go_on.set()
        return said(await self._task)

    async def _pause(self) -> None:
        self._reached.set()
        await self._go_on.wait()


async def until_one_waits(conn: PlainConnection) -> None:
    """Until a statement of somebody else waits for a lock: again and again it is the same that runs."""
    seen: dict[tuple[Any, ...], int] = {}
    async with asyncio.timeout(20):
        while max(seen.values(), default=0) < LOOKS:
            running = conn.fetch_all(_RUNNING)
            seen = {row: seen.get(row, 0) + 1 for row in running}
            await asyncio.sleep(0.01)


async def race(
    pool: Pool,
    conn: PlainConnection,
    first: tuple[Handler, Sequence[AnyFrame]],
    second: tuple[Handler, Sequence[AnyFrame]],
) -> tuple[list[str], list[str]]:
    """Two workers at once: the second begins while the first has done all but its COMMIT, and has to wait for it."""
    async with Paused(pool, first[0], *first[1]) as paused:
        late = asyncio.create_task(apply(pool, second[0], *second[1]))
        await until_one_waits(conn)
        return await paused.commit(), said(await late)


def rows(conn: PlainConnection, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    return list(conn.fetch_all(sql, parameters))


def events_of(conn: PlainConnection) -> list[str]:
    """The types of all events, in order; forgotten once they are told."""
    found = [row[0] for row in conn.fetch_all("SELECT event_type FROM wp_novel_events ORDER BY id")]
    conn.execute("DELETE FROM wp_novel_events")
    return found


_TABLES = {
    "stories": "id",
    "story_aliases": "id",
    "genres": "id",
    "story_genres": "story_id, genre_id",
    "chapters": "id",
    "chapter_content": "chapter_id",
    "chapter_versions": "chapter_id, version",
    "events": "id",
    "story_recount_queue": "story_id",
}


def everything(conn: PlainConnection, *, without: Iterable[str] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """All that a worker writes, to see that something changes none of it."""
    return {
        name: rows(conn, f"SELECT * FROM wp_novel_{name} ORDER BY {order}")
        for name, order in _TABLES.items()
        if name not in set(without)
    }
