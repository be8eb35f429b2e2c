"""A poison item costs itself, and nobody else: whether it fails, breaks the connection, or cannot be written."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from runtime import settings
from runtime.settings import Settings
from schema import connection
from schema.connection import Connection
from store import pool as pools
from store.connection import Connection as PoolConnection
from store.jobs import Job
from store.payloads import ChapterFrame
from store.pool import Pool
from tests.conftest import DatabaseServer
from tests.worker.batches import DONE, Ended, add_stories, all_ended, chapter, count, ended, error_of, push
from tests.worker.looping import Wrapped, joined, make_loop, with_worker
from worker import loop
from worker.handler import Applied

POISON = 137


@pytest.fixture
def hasty(test_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Retries follow at once."""
    monkeypatch.setattr("worker.resting.FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr("worker.resting.MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setattr("store.retry.MAX_DELAY_SECONDS", 0.001)
    return with_worker(test_settings, retry_seconds=(0.0,))


@contextmanager
def refused(conn: Connection, condition: str, *, table: str = "chapters") -> Iterator[None]:
    """The database refuses such chapters."""
    conn.execute(
        f"CREATE TRIGGER wp_novel_test_poison BEFORE INSERT ON wp_novel_{table} FOR EACH ROW"
        f" IF {condition} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'This slug makes me ill'; END IF"
    )
    try:
        yield
    finally:
        conn.execute("DROP TRIGGER wp_novel_test_poison")


def chapters(number: int, *poison: int) -> list[ChapterFrame]:
    return [chapter(n + 1, slug="poison" if n in poison else "") for n in range(number)]


async def work_off(pool: Pool, conn: Connection, hasty: Settings, handler: Wrapped, *, steps: int = 100) -> None:
    with joined(hasty) as membership:
        working = make_loop(pool, membership, hasty, handler=handler)
        for _ in range(steps):
            await working.step()
            if all_ended(conn):
                return
    raise AssertionError(f"not done after {steps} claims: {handler.sizes}")


async def test_of_300_items_with_a_poison_one_299_are_done_and_one_is_dead_after_five_attempts(
    pool: Pool, conn: Connection, hasty: Settings
) -> None:
    add_stories(conn)
    request_id = push(conn, chapters(300, POISON))
    with refused(conn, "NEW.slug = 'poison'"):
        await work_off(pool, conn, hasty, Wrapped())
    items = ended(conn, request_id)
    assert items.pop(POISON) == Ended("dead", 5)
    assert items == [DONE] * 299
    code, message = error_of(conn, request_id, POISON)
    assert code == "apply_failed"
    assert message.endswith("This slug makes me ill')")
    assert conn.fetch_all("SELECT status, processed_items, failed_items FROM wp_novel_ingest_requests") == [(3, 299, 1)]
    assert count(conn, "chapters") == 299
    assert count(conn, "ingest_ready") == count(conn, "ingest_leases") == 0


async def test_several_poison_items_side_by_side_are_told_apart_in_one_go(
    pool: Pool, conn: Connection, hasty: Settings
) -> None:
    poison = {0, 1, 31, 32, 63}
    add_stories(conn)
    request_id = push(conn, chapters(64, *poison))
    with refused(conn, "NEW.slug = 'poison'"):
        await work_off(pool, conn, with_worker(hasty, max_attempts=1), Wrapped(), steps=1)
    assert {n for n, item in enumerate(ended(conn, request_id)) if item.status == "dead"} == poison
    assert {item for n, item in enumerate(ended(conn, request_id)) if n not in poison} == {DONE}


async def test_only_the_items_that_stand_alone_leave_their_effects(
    pool: Pool, conn: Connection, hasty: Settings
) -> None:
    """What a failing half had written before it failed is undone with it: each chapter is announced once."""
    add_stories(conn)
    push(conn, chapters(8, 5))
    slug = "(SELECT slug FROM wp_novel_chapters WHERE id = NEW.chapter_id)"
    with refused(conn, f"{slug} = 'poison'", table="chapter_content"):  # written after the chapters of the set
        await work_off(pool, conn, hasty, Wrapped())
    assert count(conn, "chapters") == count(conn, "chapter_content") == 7
    events = conn.fetch_all("SELECT chapter_id, event_type FROM wp_novel_events")
    assert len({chapter_id for chapter_id, _ in events}) == 7
    assert [kind for _, kind in events] == ["chapter.created"] * 7


async def test_an_item_that_is_only_ill_for_a_while_recovers(pool: Pool, conn: Connection, hasty: Settings) -> None:
    add_stories(conn)
    request_id = push(conn, chapters(4, 2))
    with joined(hasty) as membership:
        working = make_loop(pool, membership, hasty)
        with refused(conn, "NEW.slug = 'poison'"):
            await working.step()
        await working.step()
    assert ended(conn, request_id) == [DONE, DONE, Ended("completed", 2), DONE]
    assert conn.fetch_all("SELECT last_error FROM wp_novel_ingest_jobs WHERE item_index = 2") == [(None,)]


async def test_an_item_that_breaks_the_connection_each_time_is_isolated_like_a_crash(
    pool: Pool, conn: Connection, hasty: Settings
) -> None:
    add_stories(conn)
    request_id = push(conn, chapters(20))
    handler = Wrapped()

    async def break_off(conn: PoolConnection, jobs: Sequence[Job]) -> None:
        if any(job.index == 13 for job in jobs):
            await conn.execute("KILL CONNECTION_ID()")

    handler.before = break_off
    await work_off(pool, conn, with_worker(hasty, max_crashes=2), handler)
    items = ended(conn, request_id)
    assert items.pop(13) == Ended("dead", 0, 2)
    assert [(item.status, item.attempts) for item in items] == [("completed", 1)] * 19
    assert error_of(conn, request_id, 13)[0] == "worker_crashed"


async def test_an_item_too_large_for_a_packet_is_isolated_and_its_neighbours_are_done(
    environ: dict[str, str], conn: Connection, hasty: Settings, database_server: DatabaseServer
) -> None:
    add_stories(conn)
    # Random: compression makes it no smaller than half.
    texts = [secrets.token_hex(300_000) if n == 3 else "short" for n in range(6)]
    request_id = push(conn, [chapter(n + 1, text=text) for n, text in enumerate(texts)])
    with database_server.as_root() as root, root.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        [(usual,)] = cursor.fetchall()
        cursor.execute("SET GLOBAL max_allowed_packet = 131072")
        small = pools.from_settings(hasty.database)  # its connections get the new limit
        try:
            await work_off(small, conn, with_worker(hasty, max_crashes=1), Wrapped())
        finally:
            cursor.execute("SET GLOBAL max_allowed_packet = %s", (usual,))
            await small.close()
    items = ended(conn, request_id)
    assert items.pop(3) == Ended("dead", 0, 2)
    assert [(item.status, item.attempts) for item in items] == [("completed", 1)] * 5


async def test_a_set_whose_end_cannot_be_written_comes_back_in_halves_and_stops_nobody(
    pool: Pool, conn: Connection, hasty: Settings
) -> None:
    """No item fails when it is applied: it is the events of one that the database refuses."""
    add_stories(conn)
    first, second = (push(conn, [chapter(n + m) for n in range(8)]) for m in (1, 101))
    [(poison,)] = conn.fetch_all(
        "SELECT id FROM wp_novel_ingest_jobs WHERE request_id = %s AND item_index = 6", (first,)
    )
    conn.execute(
        "CREATE TRIGGER wp_novel_test_poison BEFORE UPDATE ON wp_novel_ingest_jobs FOR EACH ROW"
        f" IF NEW.id = {poison} AND NEW.status = 2 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'No'; END IF"
    )
    try:
        await work_off(pool, conn, with_worker(hasty, max_crashes=2), Wrapped())
    finally:
        conn.execute("DROP TRIGGER wp_novel_test_poison")
    items = ended(conn, first)
    assert items.pop(6) == Ended("dead", 0, 2)
    assert {(item.status, item.attempts) for item in [*items, *ended(conn, second)]} == {("completed", 1)}


class Forgetful(Wrapped):
    """Says nothing of one item."""

    async def apply(self, conn: PoolConnection, jobs: Sequence[Job]) -> Applied:
        applied = await super().apply(conn, jobs)
        applied.outcomes = [outcome for outcome in applied.outcomes if outcome.job.index != 3]
        return applied


async def test_an_item_of_which_the_handler_says_nothing_is_a_dead_letter_and_not_lost(
    pool: Pool, conn: Connection, hasty: Settings
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(number) for number in range(1, 9)])
    await work_off(pool, conn, with_worker(hasty, max_crashes=2), Forgetful())
    items = ended(conn, request_id)
    assert items.pop(3) == Ended("dead", 0, 2)
    assert {item.status for item in items} == {"completed"}


async def test_a_table_that_somebody_has_locked_is_blamed_on_no_item(
    pool: Pool, conn: Connection, hasty: Settings, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1)])
    quick = settings.load(environ | {"NOVEL_DATABASE_LOCK_WAIT_SECONDS": "1"})
    monkeypatch.setattr("store.retry.MAX_ATTEMPTS", 1)
    monkeypatch.setattr(loop, "MAX_FAILURES", 1)
    impatient = pools.from_settings(quick.database)
    handler = Wrapped()
    with connection.connect(quick.database) as other, joined(hasty) as membership:
        other.raw.begin()
        other.execute("SELECT id FROM wp_novel_stories FOR UPDATE")

        async def let_go_at_last(conn: PoolConnection, jobs: Sequence[Job]) -> None:
            if len(handler.sizes) > loop.MAX_FAILURES:
                other.raw.rollback()

        handler.before = let_go_at_last
        await make_loop(impatient, membership, hasty, handler=handler).step()
    await impatient.close()
    assert len(handler.sizes) > loop.MAX_FAILURES
    assert ended(conn, request_id) == [DONE]


async def test_what_came_back_from_a_crash_is_claimed_alone(pool: Pool, conn: Connection, hasty: Settings) -> None:
    add_stories(conn)
    for n in range(3):
        push(conn, [chapter(10 * n + 1), chapter(10 * n + 2)])
    conn.execute("UPDATE wp_novel_ingest_ready SET crashes = 1 ORDER BY id LIMIT 1")
    handler = Wrapped()
    await work_off(pool, conn, hasty, handler)
    assert handler.sizes[0] == 2
    assert sum(handler.sizes) == 6
