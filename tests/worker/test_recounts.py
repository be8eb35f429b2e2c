"""The recount worker: right counts, failures that hold up nobody, and nobody who waits."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal

import pytest

from runtime.addresses import DatabaseAddress, parse_database
from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import errors, recounts, story_counts
from store.connection import Connection
from store.pool import Pool
from store.recounts import Dirty
from store.story_counts import Counts
from tests.store.counted_stories import (
    Chapter,
    add_chapter,
    cache_version,
    make_stories,
    make_story,
    modelled,
    queued,
    stored,
)
from tests.store.stepped import Clock, SteppedPool, stepped_pool
from tests.worker.recounting import (
    WINDOW,
    Hire,
    Interrupted,
    chapter_counts,
    column,
    outcomes,
    since,
    touch,
    worker_settings,
)
from worker.recounts import BUSY_SECONDS, RETRY_SECONDS, Recounts, recount_now

ONE, TWO, THREE = Decimal(1), Decimal(2), Decimal("2.5")


@pytest.fixture
def address(environ: dict[str, str]) -> DatabaseAddress:
    return parse_database(environ["NOVEL_DATABASE_URL"])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def at(address: DatabaseAddress, clock: Clock) -> AsyncIterator[SteppedPool]:
    async with stepped_pool(address, clock) as pool:
        yield pool


@pytest.fixture
def hire(at: SteppedPool, test_settings: Settings) -> Hire:
    """Makes a worker whose time is the test's."""
    settings = worker_settings(test_settings)

    def hire(worker_id: int = 1, *, limit: int = 500, pool: Pool = at, kind: type[Recounts] = Recounts) -> Recounts:
        return kind(pool, worker_id=worker_id, limit=limit, settings=settings)

    return hire


# -- what is counted ---------------------------------------------------------------------------------------


async def test_everything_due_is_counted_and_leaves_the_queue(
    at: SteppedPool, conn: PlainConnection, hire: Hire
) -> None:
    story_ids = make_stories(conn, 7)
    await touch(at, *story_ids)
    before = outcomes()
    worker = hire(limit=3)
    assert [await worker.step() for _ in range(4)] == [3, 3, 1, 0]
    assert chapter_counts(conn, story_ids) == [1] * 7
    assert queued(conn) == {}
    assert since(before) == {"changed": 7}


@pytest.mark.parametrize(
    ("change", "first", "second"),
    [
        ("UPDATE wp_novel_chapters SET deleted_at = UTC_TIMESTAMP() WHERE slug = 'c2'", [ONE, THREE], []),
        ("UPDATE wp_novel_chapters SET is_published = 0 WHERE slug = 'c2.5'", [ONE, TWO], []),
        ("UPDATE wp_novel_chapters SET story_id = story_id + 1 WHERE slug = 'c2.5'", [ONE, TWO], [THREE]),
        ("UPDATE wp_novel_chapters SET story_id = story_id + 1", [], [ONE, TWO, THREE]),
        ("DELETE FROM wp_novel_chapters", [], []),
    ],
    ids=["deleted", "unpublished", "moved", "all moved", "gone"],
)
async def test_counts_are_right_after_chapters_are(
    at: SteppedPool,
    conn: PlainConnection,
    hire: Hire,
    change: str,
    first: list[Decimal],
    second: list[Decimal],
) -> None:
    chapters = {number: Chapter(number, 100 * int(number * 2)) for number in (ONE, TWO, THREE)}
    story_ids = [make_story(conn, scores=[9, 10]), make_story(conn)]
    for number, chapter in chapters.items():
        add_chapter(conn, story_ids[0], chapter)
        conn.execute("UPDATE wp_novel_chapters SET slug = %s WHERE chapter_no = %s", (f"c{number}", number))
    await touch(at, *story_ids)
    await hire().step()
    assert stored(conn, story_ids[0]) == modelled(chapters.values(), [9, 10])
    conn.execute(change)
    await touch(at, *story_ids)
    await hire().step()
    assert stored(conn, story_ids[0]) == modelled([chapters[number] for number in first], [9, 10])
    assert stored(conn, story_ids[1]) == modelled([chapters[number] for number in second], [])


async def test_ratings_that_change_or_go_are_counted_again(at: SteppedPool, conn: PlainConnection, hire: Hire) -> None:
    story_id = make_story(conn, chapters=[Chapter(ONE, 12_345)], scores=[7, 8, 8])
    for change, scores in (
        ("SELECT 1", [7, 8, 8]),
        ("UPDATE wp_novel_ratings SET score = 1 WHERE user_id = 1", [1, 8, 8]),
        ("DELETE FROM wp_novel_ratings WHERE user_id = 2", [1, 8]),
    ):
        conn.execute(change)
        await touch(at, story_id)
        await hire().step()
        assert stored(conn, story_id) == modelled([Chapter(ONE, 12_345)], scores)


async def test_a_story_that_is_gone_leaves_the_queue(at: SteppedPool, conn: PlainConnection, hire: Hire) -> None:
    story_ids = make_stories(conn, 2)
    await touch(at, *story_ids)
    conn.execute("DELETE FROM wp_novel_stories WHERE id = %s", (story_ids[0],))
    before = outcomes()
    await hire().step()
    assert (queued(conn), since(before)) == ({}, {"changed": 1, "vanished": 1})


async def test_many_touches_within_the_window_are_one_recount_after_it(
    at: SteppedPool, conn: PlainConnection, clock: Clock, hire: Hire
) -> None:
    (story_id,) = make_stories(conn, 1)
    worker = hire()
    for _ in range(6):
        await touch(at, story_id, window=WINDOW)
        assert await worker.step() == 0
        clock.tick(10)
    assert await worker.step() == 1
    assert await worker.step() == 0
    assert cache_version(conn, story_id) == 1


# -- failures ----------------------------------------------------------------------------------------------


@contextmanager
def uncountable(conn: PlainConnection, *story_ids: int) -> Iterator[None]:
    """The database refuses to write these stories."""
    listed = ", ".join(map(str, story_ids))
    conn.execute(
        "CREATE TRIGGER refuse_counts BEFORE UPDATE ON wp_novel_stories FOR EACH ROW"
        f" IF OLD.id IN ({listed}) THEN SIGNAL SQLSTATE '45000'; END IF"
    )
    try:
        yield
    finally:
        conn.execute("DROP TRIGGER refuse_counts")


async def test_stories_that_cannot_be_counted_hold_up_no_others(
    at: SteppedPool, conn: PlainConnection, hire: Hire
) -> None:
    story_ids = make_stories(conn, 50)
    bad = [story_ids[0], story_ids[23], story_ids[24]]
    await touch(at, *story_ids)
    before = outcomes()
    with uncountable(conn, *bad):
        assert await hire().step() == 50
    assert chapter_counts(conn, story_ids) == [int(story_id not in bad) for story_id in story_ids]
    assert column(conn, "attempts") == dict.fromkeys(bad, 1)
    assert column(conn, "locked_by") == dict.fromkeys(bad)
    assert since(before) == {"changed": 47, "failed": 3}


async def test_a_story_is_tried_again_after_longer_and_longer_times_until_it_can_be_counted(
    at: SteppedPool, conn: PlainConnection, clock: Clock, hire: Hire
) -> None:
    (story_id,) = make_stories(conn, 1)
    await touch(at, story_id)
    worker = hire()
    with uncountable(conn, story_id):
        for attempts, seconds in enumerate((*RETRY_SECONDS, RETRY_SECONDS[-1]), 1):
            assert await worker.step() == 1
            assert column(conn, "attempts") == {story_id: attempts}
            clock.tick(0.8 * seconds - 1)
            assert await worker.step() == 0
            clock.tick(0.4 * seconds + 2)
    assert await worker.step() == 1
    assert (queued(conn), chapter_counts(conn, [story_id])) == ({}, [1])


def test_the_waits_double_from_half_a_minute_to_an_hour() -> None:
    assert RETRY_SECONDS == (30, 60, 120, 240, 480, 960, 1920, 3600)


# -- nobody waits ------------------------------------------------------------------------------------------


async def test_a_story_that_somebody_works_on_is_left_for_later_and_the_others_are_counted(
    at: SteppedPool, conn: PlainConnection, clock: Clock, hire: Hire
) -> None:
    story_ids = make_stories(conn, 3)
    await touch(at, *story_ids)
    before = outcomes()
    worker = hire()
    with conn.transaction():
        conn.execute("UPDATE wp_novel_stories SET title = 'New' WHERE id = %s", (story_ids[1],))
        assert await worker.step() == 3
        assert await worker.step() == 0
        clock.tick(BUSY_SECONDS)
        assert await worker.step() == 1
    assert chapter_counts(conn, story_ids) == [1, 0, 1]
    assert since(before) == {"changed": 2, "busy": 2}
    clock.tick(BUSY_SECONDS)
    assert await worker.step() == 1
    assert chapter_counts(conn, story_ids) == [1, 1, 1]
    assert (queued(conn), column(conn, "attempts")) == ({}, {})


async def test_a_claimed_story_that_is_touched_just_then_is_let_go_of_in_a_later_step(
    at: SteppedPool, conn: PlainConnection, hire: Hire
) -> None:
    story_ids = make_stories(conn, 2)
    await touch(at, *story_ids)
    touched, may_commit = asyncio.Event(), asyncio.Event()
    writing: list[asyncio.Task[None]] = []

    async def content(writer: Connection) -> None:
        await recounts.touch(writer, [story_ids[0]], window_seconds=WINDOW)
        touched.set()
        await may_commit.wait()

    async def begin_to_write(_: Sequence[Dirty]) -> None:
        if not writing:
            writing.append(asyncio.create_task(at.transaction(content)))
            await touched.wait()

    worker = hire(kind=Interrupted)
    worker.happens = begin_to_write
    assert await worker.step() == 2
    assert queued(conn) == {story_ids[0]: 1}
    assert await worker.step() == 0  # it is still being touched
    may_commit.set()
    await asyncio.gather(*writing)
    assert await worker.step() == 1
    assert (queued(conn), chapter_counts(conn, story_ids)) == ({}, [1, 1])


# -- one story at once ------------------------------------------------------------------------------------


async def test_a_count_of_one_story_at_once_writes_what_a_slower_worker_cannot_take_back(
    at: SteppedPool, conn: PlainConnection, clock: Clock, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    (story_id,) = make_stories(conn, 1)
    await touch(at, story_id)
    compute = story_counts.compute

    async def compute_and_be_slow(reader: Connection, story_ids: Sequence[int]) -> list[Counts]:
        counts = await compute(reader, story_ids)
        monkeypatch.setattr(story_counts, "compute", compute)
        add_chapter(conn, story_id, Chapter(TWO, 100))
        counted_now = await recount_now(at, story_id)
        assert counted_now is not None
        assert counted_now.chapter_count == 2
        assert chapter_counts(conn, [story_id]) == [2]
        return counts

    monkeypatch.setattr(story_counts, "compute", compute_and_be_slow)
    worker = hire()
    assert await worker.step() == 1
    clock.tick(WINDOW)
    assert await worker.step() == 1
    assert (queued(conn), chapter_counts(conn, [story_id])) == ({}, [2])


async def test_a_story_that_is_not_there_is_not_counted_at_once(at: SteppedPool) -> None:
    assert await recount_now(at, 1) is None


async def test_a_statement_that_takes_too_long_is_tried_with_fewer_stories(
    at: SteppedPool, conn: PlainConnection, hire: Hire, monkeypatch: pytest.MonkeyPatch
) -> None:
    story_ids = make_stories(conn, 9)
    await touch(at, *story_ids)
    compute = story_counts.compute

    async def slow(reader: Connection, some: Sequence[int]) -> list[Counts]:
        if len(some) > 2:
            raise errors.StatementTimeout
        return await compute(reader, some)

    monkeypatch.setattr(story_counts, "compute", slow)
    assert await hire().step() == 9
    assert (queued(conn), chapter_counts(conn, story_ids)) == ({}, [1] * 9)
