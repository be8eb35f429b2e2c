"""The event log: ids in the order of commits, so that a reader with a cursor misses nothing."""

import asyncio

import pytest

from schema.connection import Connection as PlainConnection
from store import events
from store.connection import Connection
from store.events import New
from store.pool import Pool
from tests.worker.applying import until_one_waits

TIMEOUT_SECONDS = 20


async def append(pool: Pool, *story_ids: int) -> None:
    new = [New(events.STORY_UPDATED, story_id) for story_id in story_ids]
    await pool.transaction(lambda conn: events.append(conn, new))


async def read(pool: Pool, cursor: int = 0, *, limit: int = 100) -> list[tuple[int, int]]:
    """Ids and stories of the events after a cursor."""
    async with pool.reading() as conn:
        return [(event.id, event.story_id) for event in await events.after(conn, cursor, limit=limit)]


async def test_a_reader_goes_on_from_its_cursor(pool: Pool) -> None:
    await append(pool, 1, 2, 3)
    await append(pool, 4)
    first = await read(pool, limit=2)
    rest = await read(pool, first[-1][0])
    assert [story_id for _, story_id in first + rest] == [1, 2, 3, 4]
    assert await read(pool, rest[-1][0]) == []


async def test_an_event_says_what_happened_to_what_and_when(pool: Pool, conn: PlainConnection) -> None:
    new = [New(events.STORY_CREATED, 1), New(events.CHAPTER_DELETED, 1, 2)]
    await pool.transaction(lambda writing: events.append(writing, new))
    async with pool.reading() as reading:
        found = await events.after(reading, 0, limit=10)
    assert [(event.event_type, event.story_id, event.chapter_id) for event in found] == [
        ("story.created", 1, None),
        ("chapter.deleted", 1, 2),
    ]
    ((newest, now),) = conn.fetch_all("SELECT MAX(created_at), UTC_TIMESTAMP(6) FROM wp_novel_events")
    assert found[-1].created_at == newest <= now


async def test_nothing_to_append_locks_nothing(pool: Pool, conn: PlainConnection) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO wp_novel_event_gate VALUES (1, 1)")
        await append(pool)
    assert await read(pool) == []


async def test_a_transaction_that_fails_leaves_no_event_and_opens_the_gate(pool: Pool) -> None:
    async def work(conn: Connection) -> None:
        await events.append(conn, [New(events.STORY_CREATED, 1)])
        raise LookupError

    with pytest.raises(LookupError):
        await pool.transaction(work)
    await append(pool, 2)
    assert [story_id for _, story_id in await read(pool)] == [2]


@pytest.mark.parametrize("is_first_ever", [True, False])
async def test_a_reader_does_not_skip_what_is_committed_late(
    pool: Pool, conn: PlainConnection, is_first_ever: bool
) -> None:
    """Without the gate the second writer would be read first, with the higher id, and the first one's never."""
    if not is_first_ever:
        await append(pool, 0)
    cursor = max((number for number, _ in await read(pool)), default=0)
    has_appended, may_commit = asyncio.Event(), asyncio.Event()

    async def late(writing: Connection) -> None:
        await events.append(writing, [New(events.STORY_UPDATED, 1)])
        has_appended.set()
        await may_commit.wait()

    slow = asyncio.create_task(pool.transaction(late))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await has_appended.wait()
    quick = asyncio.create_task(append(pool, 2))
    await until_one_waits(conn)
    seen = await read(pool, cursor)
    assert seen == []
    may_commit.set()
    await asyncio.gather(slow, quick)
    assert [story_id for _, story_id in await read(pool, cursor)] == [1, 2]


async def test_a_reader_beside_many_writers_sees_every_event_once_and_in_order(pool: Pool) -> None:
    writers, each = 4, 25
    seen: list[tuple[int, int]] = []
    done = asyncio.Event()

    async def follow() -> None:
        while True:
            is_last = done.is_set()
            new = await read(pool, seen[-1][0] if seen else 0, limit=7)
            seen.extend(new)
            if is_last and not new:
                return

    async def write(writer: int) -> None:
        for place in range(each):
            await append(pool, writer * 1000 + place, writer * 1000 + 500 + place)

    reader = asyncio.create_task(follow())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*(write(writer) for writer in range(writers)))
        done.set()
        await reader
    assert [number for number, _ in seen] == sorted({number for number, _ in seen})
    assert sorted(story for _, story in seen) == sorted(
        writer * 1000 + half + place for writer in range(writers) for half in (0, 500) for place in range(each)
    )


@pytest.mark.parametrize(
    ("was_visible", "is_visible", "kind"),
    [(False, True, "created"), (True, True, "updated"), (True, False, "deleted"), (False, False, None)],
)
def test_an_event_is_what_readers_see_of_a_change(was_visible: bool, is_visible: bool, kind: str | None) -> None:
    story = events.of_story(was_visible=was_visible, is_visible=is_visible)
    chapter = events.of_chapter(was_visible=was_visible, is_visible=is_visible)
    assert (story, chapter) == ((f"story.{kind}", f"chapter.{kind}") if kind else (None, None))
