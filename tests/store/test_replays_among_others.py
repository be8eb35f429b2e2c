"""Replays among others: a second run, a worker of the same request, a purge, and what dies again meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from runtime.settings import Settings
from schema import connection
from schema.connection import Connection
from store import dead_letters, replays
from store.pool import Pool
from store.replays import Run
from tests.processes import wait_for
from tests.store.queued import (
    assert_consistent,
    begin_replay,
    chapter,
    end,
    lose_payload,
    make_batch,
    make_dead,
    request_state,
    states,
    unhurried,
    waiting_items,
)

FRAMES = [chapter(number) for number in range(6)]


@contextmanager
def connected(settings: Settings, count: int) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connection.connect(settings.database)) for _ in range(count)]


async def test_jobs_that_another_run_is_queueing_are_left_to_it_without_a_wait(
    pool: Pool, conn: Connection, test_settings: Settings
) -> None:
    first, _ = await make_dead(pool, conn, FRAMES), await make_dead(pool, conn, FRAMES[:2])
    run, job_ids = begin_replay(conn)
    with connected(test_settings, 1) as (other,):
        other_run, _ = begin_replay(other)
        with conn.transaction():
            run = replays._queue(conn, run, first.job_ids)
            other_run = replays.queue(other, other_run, job_ids, wait=unhurried)
        assert (run.queued, other_run.queued, other_run.taken) == (6, 2, 6)
    assert_consistent(conn)


async def test_two_runs_at_once_queue_each_job_once(pool: Pool, conn: Connection, test_settings: Settings) -> None:
    batches = [await make_dead(pool, conn, FRAMES * 5) for _ in range(10)]
    with connected(test_settings, 3) as connections:
        # Until later: so it is only the state of a job that says whether it is still to be taken.
        until = dead_letters.now(conn) + timedelta(hours=1)
        begun = [begin_replay(one, until=until) for one in connections]
        together = threading.Barrier(len(connections))
        runs: list[Run] = []

        def work(one: Connection, run: Run, job_ids: list[int]) -> None:
            together.wait(30)
            for first in range(0, len(job_ids), 7):
                run = replays.queue(one, run, job_ids[first : first + 7], wait=unhurried)
            runs.append(run)

        threads = [threading.Thread(target=work, args=(one, *its)) for one, its in zip(connections, begun, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sum(run.queued for run in runs) == waiting_items(conn) == 300
    assert all(run.queued + run.taken == 300 for run in runs)
    assert {name for batch in batches for name in states(conn, batch)} == {"queued"}
    assert_consistent(conn)


async def test_what_dies_again_after_the_run_began_is_for_another_run(pool: Pool, conn: Connection) -> None:
    batch = await make_dead(pool, conn, ago_seconds=60)
    run, job_ids = begin_replay(conn, until=dead_letters.now(conn) - timedelta(seconds=30))
    assert job_ids == list(batch.job_ids)
    end(conn, batch)
    run = replays.queue(conn, run, job_ids, wait=unhurried)
    assert (run.queued, run.taken) == (0, 1)
    assert states(conn, batch) == ["dead_letter"]


async def test_what_has_another_error_by_now_is_left_out(pool: Pool, conn: Connection) -> None:
    batch = await make_dead(pool, conn, code="mended", ago_seconds=60)
    run, job_ids = begin_replay(conn, error_code="mended")
    end(conn, batch, code="something else", ago_seconds=30)
    assert replays.queue(conn, run, job_ids, wait=unhurried).taken == 1
    assert states(conn, batch) == ["dead_letter"]


async def test_jobs_that_were_purged_since_they_were_found_are_left_out(pool: Pool, conn: Connection) -> None:
    batch = await make_dead(pool, conn, FRAMES)
    run, job_ids = begin_replay(conn)
    conn.execute("DELETE FROM wp_novel_ingest_jobs WHERE id = %s", (batch.job_ids[2],))
    run = replays.queue(conn, run, job_ids, wait=unhurried)
    assert (run.queued, run.taken, run.left) == (5, 1, 0)


async def test_payloads_that_were_purged_since_they_were_found_leave_their_jobs_as_they_are(
    pool: Pool, conn: Connection
) -> None:
    gone, there = await make_dead(pool, conn, FRAMES), await make_dead(pool, conn, FRAMES)
    run, job_ids = begin_replay(conn)
    lose_payload(conn, gone)
    run = replays.queue(conn, run, job_ids, wait=unhurried)
    assert (run.queued, run.payload_gone, run.taken, run.left) == (6, 6, 0, 0)
    assert set(states(conn, gone)) == {"dead_letter"}
    assert request_state(conn, gone) == ("failed", 0, 6)
    assert set(states(conn, there)) == {"queued"}
    assert_consistent(conn)


async def test_a_worker_that_counts_and_a_replay_wait_for_each_other_and_both_count(
    pool: Pool, conn: Connection, test_settings: Settings
) -> None:
    """Of one request: here two of its items are replayed while a worker ends the third."""
    batch = await make_batch(pool, FRAMES[:3])
    end(conn, batch, dead={0, 1})
    run, job_ids = begin_replay(conn)
    ended: list[Run] = []
    with connected(test_settings, 1) as (other,):
        thread = threading.Thread(
            target=lambda: ended.append(replays.queue(other, run, job_ids, wait=unhurried)), daemon=True
        )
        with conn.transaction():
            conn.execute("UPDATE wp_novel_ingest_requests SET processed_items = processed_items + 1")
            thread.start()
            wait_for(lambda: is_waiting(conn, other))
            assert not ended
        thread.join(30)
    assert ended[0].queued == 2
    assert request_state(conn, batch) == ("processing", 2, 0)


def is_waiting(conn: Connection, other: Connection) -> bool:
    """Whether the other is in the middle of a statement that locks requests."""
    rows = conn.fetch_all(
        "SELECT info FROM information_schema.processlist WHERE id = %s AND time_ms > 50", (other.raw.thread_id(),)
    )
    return any("wp_novel_ingest_requests" in (info or "") for (info,) in rows)
