"""How the queue stands, figure by figure, and what it costs to say so."""

import pytest

from schema.connection import Connection
from store import payloads, queue_status
from store.pool import Pool
from store.queue_status import Abandoned, Depth, Failures, Processing, Recounts
from tests.store.queued import chapter, end, make_batch, make_dead, reads, story

FRAMES = [chapter(number) for number in range(3)]


def shift(conn: Connection, seconds: int) -> None:
    """As if all that waits had become due so long ago; below 0, it is due so much later."""
    conn.execute("UPDATE wp_novel_ingest_ready SET next_run_at = UTC_TIMESTAMP(6) - INTERVAL %s SECOND", (seconds,))


def add_worker(conn: Connection, *, silent_seconds: int = 0, kind: str = "chapters") -> int:
    conn.execute(
        "INSERT INTO wp_novel_workers (kind, host, boot_id, pid, started_at, heartbeat_at) VALUES"
        " (%s, 'host-1/machine', 'boot', 77, UTC_TIMESTAMP(6) - INTERVAL 3600 SECOND,"
        "  UTC_TIMESTAMP(6) - INTERVAL %s SECOND)",
        (kind, silent_seconds),
    )
    return int(conn.fetch_all("SELECT LAST_INSERT_ID()")[0][0])


def lease_all(conn: Connection, worker_id: int, *, ago_seconds: int = 0) -> None:
    """As if a worker had claimed all that waits."""
    columns = (
        "id, job_type, source, request_id, payload_blob_id, first_item, last_item, items, payload_bytes, next_run_at,"
        " created_at"
    )
    conn.execute(
        f"INSERT INTO wp_novel_ingest_leases ({columns}, worker_id, claimed_at)"
        f" SELECT {columns}, %s, UTC_TIMESTAMP(6) - INTERVAL %s SECOND FROM wp_novel_ingest_ready",
        (worker_id, ago_seconds),
    )
    conn.execute("DELETE FROM wp_novel_ingest_ready")


def add_task(conn: Connection, task: str, *, due: int, holder: str | None = None, held: int = 0) -> None:
    """Due so many seconds ago, and held for so many from now on."""
    conn.execute(
        "INSERT INTO wp_novel_upkeep (task, holder, held_until, next_run_at, finished_at, seconds, changed_rows,"
        " lag_seconds) VALUES (%s, %s, UTC_TIMESTAMP(6) + INTERVAL %s SECOND, UTC_TIMESTAMP(6) - INTERVAL %s SECOND,"
        " UTC_TIMESTAMP(6) - INTERVAL 50 SECOND, 1.5, 7, 20)",
        (task, holder, held, due),
    )


def test_an_empty_queue_has_nothing_to_say(conn: Connection) -> None:
    found = queue_status.read(conn)
    assert (found.waiting, found.processing, found.failures, found.workers, found.maintenance) == ((), (), (), (), ())
    assert (found.abandoned, found.recounts) == (Abandoned(0, 0), Recounts(0, 0, None, 0, None, 0))
    assert (found.ended("dead_letter"), found.is_capped("dead_letter")) == (0, False)


async def test_what_waits_is_told_by_job_type_and_source_and_counted_once(pool: Pool, conn: Connection) -> None:
    await make_batch(pool, FRAMES[:1])
    shift(conn, -600)
    conn.execute("UPDATE wp_novel_ingest_ready SET waiting_for = 's1'")
    retried = await make_batch(pool, FRAMES[:2])
    conn.execute(
        "UPDATE wp_novel_ingest_ready SET next_run_at = UTC_TIMESTAMP(6) + INTERVAL 60 SECOND WHERE request_id = %s",
        (retried.request_id,),
    )
    due = await make_batch(pool, FRAMES)
    conn.execute(
        "UPDATE wp_novel_ingest_ready SET next_run_at = UTC_TIMESTAMP(6) - INTERVAL 100 SECOND WHERE request_id = %s",
        (due.request_id,),
    )
    await make_batch(pool, FRAMES, source="b")
    await make_batch(pool, [story()])
    other, chapters, stories = queue_status.read(conn).waiting
    assert chapters.oldest_due_seconds is not None
    assert 100 <= chapters.oldest_due_seconds < 160
    assert chapters == Depth(payloads.CHAPTERS, "truyen-a", 3, 6, 1, 3, 1, 2, chapters.oldest_due_seconds)
    assert (other.source, other.items, other.due_items) == ("b", 3, 3)
    assert (stories.job_type, stories.items, stories.waiting_for_story_items) == (payloads.STORIES, 1, 0)


async def test_what_is_not_due_has_no_age(pool: Pool, conn: Connection) -> None:
    await make_batch(pool, FRAMES)
    shift(conn, -60)
    (depth,) = queue_status.depths(conn)
    assert (depth.due_items, depth.due_units, depth.oldest_due_seconds) == (0, 0, None)


async def test_a_chapter_whose_story_came_is_due_and_waits_for_nothing(pool: Pool, conn: Connection) -> None:
    await make_batch(pool, FRAMES)
    conn.execute("UPDATE wp_novel_ingest_ready SET waiting_for = 's1'")
    (depth,) = queue_status.depths(conn)
    assert (depth.due_items, depth.waiting_for_story_items, depth.waiting_for_retry_items) == (3, 0, 0)


async def test_workers_are_told_the_same_depths(pool: Pool, conn: Connection) -> None:
    await make_batch(pool, FRAMES)
    shift(conn, -60)
    async with pool.reading() as reading:
        assert await queue_status.depths_async(reading) == queue_status.depths(conn) != []


async def test_what_is_held_is_told_with_who_holds_it_and_since_when(pool: Pool, conn: Connection) -> None:
    idle, busy = add_worker(conn, silent_seconds=70), add_worker(conn)
    await make_batch(pool, FRAMES)
    await make_batch(pool, FRAMES)
    lease_all(conn, busy, ago_seconds=100)
    await make_batch(pool, FRAMES[:1])
    lease_all(conn, 0)
    found = queue_status.read(conn)
    (group,) = found.processing
    assert group == Processing(payloads.CHAPTERS, "truyen-a", 3, 7, group.oldest_claim_seconds)
    assert 100 <= group.oldest_claim_seconds < 160
    assert found.abandoned == Abandoned(1, 1)
    assert [(worker.id, worker.units, worker.items) for worker in found.workers] == [(idle, 0, 0), (busy, 2, 6)]
    worker = found.workers[0]
    assert (worker.kind, worker.host, worker.pid) == ("chapters", "host-1/machine", 77)
    assert 3600 <= worker.started_seconds < 3660
    assert 70 <= worker.heartbeat_seconds < 130
    assert [one.is_late(120) for one in found.workers] == [True, False]


async def test_failures_are_grouped_by_how_they_ended_and_why(pool: Pool, conn: Connection) -> None:
    await make_dead(pool, conn, FRAMES, ago_seconds=1000)
    await make_dead(pool, conn, FRAMES[:1], ago_seconds=100)
    await make_dead(pool, conn, [story()], code=None)
    batch = await make_batch(pool, FRAMES)
    end(conn, batch, dead=(), failed=(0,), code="invalid_item")
    found = queue_status.read(conn)
    ages = [group.newest_seconds for group in found.failures]
    assert 100 <= ages[0] < 160
    assert found.failures == (
        Failures(payloads.CHAPTERS, "dead_letter", "apply_failed", 4, ages[0]),
        Failures(payloads.STORIES, "dead_letter", None, 1, ages[1]),
        Failures(payloads.CHAPTERS, "failed", "invalid_item", 1, ages[2]),
    )
    assert (found.ended("dead_letter"), found.ended("failed")) == (5, 1)


def test_recounts_are_told_as_due_locked_and_to_be_tried_again(conn: Connection) -> None:
    rows = [(1, 100, None, 0), (2, 40, None, 0), (3, -60, None, 2), (4, -60, 700, 1), (5, -60, 30, 0)]
    for story_id, due, locked, attempts in rows:
        conn.execute(
            "INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, locked_at, attempts,"
            " updated_at) VALUES (%s, UTC_TIMESTAMP(), UTC_TIMESTAMP() - INTERVAL %s SECOND,"
            " UTC_TIMESTAMP() - INTERVAL %s SECOND, %s, UTC_TIMESTAMP())",
            (story_id, due, locked, attempts),
        )
    found = queue_status.read(conn).recounts
    assert (found.stories, found.due, found.locked, found.retrying) == (5, 2, 2, 2)
    assert found.oldest_due_seconds is not None
    assert found.oldest_lock_seconds is not None
    assert 100 <= found.oldest_due_seconds < 160
    assert 700 <= found.oldest_lock_seconds < 760


def test_a_task_is_overdue_only_while_nobody_is_at_it(conn: Connection) -> None:
    add_task(conn, "held", due=400, holder="7/abc123", held=60)
    add_task(conn, "left", due=400, holder="8/abc123", held=-60)
    add_task(conn, "well", due=-100)
    held, left, well = queue_status.read(conn).maintenance
    assert (held.holder, held.overdue_seconds) == ("7", 0)
    assert left.holder is None
    assert 400 <= left.overdue_seconds < 460
    assert (well.holder, well.overdue_seconds) == (None, 0)
    assert (well.took_seconds, well.changed_rows, well.lag_seconds) == (1.5, 7, 20)
    assert well.finished_seconds is not None
    assert 50 <= well.finished_seconds < 110


async def test_of_many_failures_the_newest_are_counted_up_to_a_limit(
    pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_status, "MAX_COUNTED", 4)
    await make_dead(pool, conn, FRAMES, code="old", ago_seconds=100)
    await make_dead(pool, conn, FRAMES, code="new")
    found = queue_status.read(conn)
    assert {group.error_code: group.items for group in found.failures} == {"new": 3, "old": 1}
    assert (found.ended("dead_letter"), found.is_capped("dead_letter"), found.is_capped("failed")) == (4, True, False)


async def test_its_cost_grows_neither_with_what_is_finished_nor_with_what_failed_beyond_the_limit(
    pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_status, "MAX_COUNTED", 10)
    await make_batch(pool, FRAMES)
    await make_dead(pool, conn, [chapter(number) for number in range(20)])
    alone = reads(conn, lambda: queue_status.read(conn))
    many = [chapter(number) for number in range(300)]
    completed = await make_batch(pool, many)
    end(conn, completed, dead=())
    await make_dead(pool, conn, many)
    assert 0 < alone == reads(conn, lambda: queue_status.read(conn))
