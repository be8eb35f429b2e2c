"""Replays: what is queued again and how it is counted, whoever else is at it, and what the journal says."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from runtime.settings import Settings
from schema.connection import Connection
from store import replays, retry
from store.pool import Pool
from store.replays import Job, Run
from store.retention import SECURITY_EVENTS
from tests.store.queued import (
    assert_consistent,
    begin_replay,
    chapter,
    end,
    lose_payload,
    make_batch,
    make_dead,
    reads,
    request_state,
    states,
    story,
    unhurried,
    waiting_items,
    work_off,
)

FRAMES = [chapter(number) for number in range(6)]


def replay(conn: Connection, *, piece: int = 300, **filters: Any) -> Run:
    run, job_ids = begin_replay(conn, **filters)
    for first in range(0, len(job_ids), piece):
        run = replays.queue(conn, run, job_ids[first : first + piece], wait=unhurried)
    replays.end(conn, run, stopped=False)
    return run


def journal(conn: Connection) -> list[tuple[str, dict[str, Any]]]:
    rows = conn.fetch_all(
        "SELECT message, context_json FROM wp_novel_sync_logs WHERE event_type = 'replay.dead_letter' ORDER BY id"
    )
    return [(message, json.loads(context)) for message, context in rows]


# -- what is queued -------------------------------------------------------------------------------------


async def test_what_is_queued_again_starts_anew_and_keeps_its_error_to_be_read(pool: Pool, conn: Connection) -> None:
    batch = await make_dead(pool, conn)
    conn.execute("UPDATE wp_novel_ingest_jobs SET crashes = 3, is_stale = 1, locked_by = 'w', locked_at = '2026-01-01'")
    run = replay(conn)
    assert (run.matched, run.queued, run.units, run.payload_gone, run.taken, run.left) == (1, 1, 1, 0, 0, 0)
    rows = conn.fetch_all(
        "SELECT status, attempts, crashes, is_stale, locked_at, locked_by, error_code, last_error,"
        " next_run_at <= UTC_TIMESTAMP() FROM wp_novel_ingest_jobs"
    )
    assert rows == [(0, 0, 0, 0, None, None, "apply_failed", "what went wrong", 1)]
    [(request_id, attempts, crashes, is_due)] = conn.fetch_all(
        "SELECT request_id, attempts, crashes, next_run_at <= UTC_TIMESTAMP(6) FROM wp_novel_ingest_ready"
    )
    assert (request_id, attempts, crashes, is_due) == (batch.request_id, 0, 0, 1)
    assert_consistent(conn)


async def test_neighbours_are_one_unit_and_what_lies_between_is_not_in_it(pool: Pool, conn: Connection) -> None:
    batch = await make_batch(pool, FRAMES)
    end(conn, batch, dead={0, 1, 3, 5}, failed={4})
    run = replay(conn)
    assert (run.queued, run.units) == (4, 3)
    rows = conn.fetch_all("SELECT first_item, last_item, items FROM wp_novel_ingest_ready ORDER BY first_item")
    assert rows == [(0, 1, 2), (3, 3, 1), (5, 5, 1)]
    assert states(conn, batch) == ["queued", "queued", "completed", "queued", "failed", "queued"]
    assert_consistent(conn)


async def test_items_that_the_door_refused_split_no_unit(pool: Pool, conn: Connection) -> None:
    batch = await make_batch(pool, FRAMES, indexes=[0, 2, 7, 8, 100, 299])
    end(conn, batch)
    assert replay(conn).units == 1
    assert conn.fetch_all("SELECT first_item, last_item, items FROM wp_novel_ingest_ready") == [(0, 299, 6)]
    assert_consistent(conn)


async def test_a_request_of_several_blobs_becomes_a_unit_of_each(pool: Pool, conn: Connection) -> None:
    batch = await make_batch(pool, FRAMES, max_blob_bytes=300)
    end(conn, batch)
    assert replay(conn).units == len(batch.blob_ids) > 1
    assert_consistent(conn)


async def test_the_counts_of_a_request_are_right_after_a_replay_and_after_its_items_were_done(
    pool: Pool, conn: Connection, test_settings: Settings
) -> None:
    batch = await make_batch(pool, [story(number) for number in range(4)])
    end(conn, batch, dead={1, 2}, failed={3})
    assert request_state(conn, batch) == ("partially_failed", 1, 3)
    replay(conn)
    assert request_state(conn, batch) == ("processing", 1, 1)
    assert await work_off(pool, test_settings, "stories") == 2
    assert request_state(conn, batch) == ("partially_failed", 3, 1)
    replay(conn, error_code="apply_failed")
    assert request_state(conn, batch) == ("processing", 3, 0)
    await work_off(pool, test_settings, "stories")
    assert request_state(conn, batch) == ("completed", 4, 0)
    assert states(conn, batch) == ["completed"] * 4
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_jobs WHERE last_error IS NOT NULL") == [(0,)]


async def test_a_request_that_counts_too_few_failures_is_not_counted_below_none(pool: Pool, conn: Connection) -> None:
    batch = await make_dead(pool, conn, FRAMES)
    conn.execute("UPDATE wp_novel_ingest_requests SET failed_items = 2")
    assert replay(conn).queued == 6
    assert request_state(conn, batch) == ("processing", 0, 0)


OUTCOMES = st.lists(st.lists(st.sampled_from(["dead", "failed", "completed"]), min_size=1, max_size=6), max_size=3)


@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(outcomes=OUTCOMES, piece=st.integers(1, 5), by_code=st.booleans())
async def test_whatever_was_dead_and_in_whatever_pieces_it_is_taken_all_of_it_is_queued_once(
    pool: Pool, conn: Connection, outcomes: list[list[str]], piece: int, by_code: bool
) -> None:
    code = uuid.uuid4().hex
    batches = []
    for some in outcomes:
        batch = await make_batch(pool, FRAMES[: len(some)], source=code, max_blob_bytes=600)
        dead, failed = ({at for at, outcome in enumerate(some) if outcome == name} for name in ("dead", "failed"))
        end(conn, batch, dead=dead, failed=failed, code=code)
        batches.append(batch)
    run = replay(conn, piece=piece, source=code, error_code=code if by_code else None)
    queued = {"dead": "queued", "failed": "queued" if by_code else "failed", "completed": "completed"}
    assert [states(conn, batch) for batch in batches] == [[queued[name] for name in some] for some in outcomes]
    assert run.queued == run.matched == sum(queued[name] == "queued" for some in outcomes for name in some)
    assert_consistent(conn)


@given(
    st.dictionaries(st.tuples(st.integers(1, 3), st.integers(0, 12)), st.booleans(), max_size=30),
)
def test_units_hold_each_wanted_job_once_and_no_other(items: dict[tuple[int, int], bool]) -> None:
    places = sorted(items)
    jobs = [
        Job(number, f"r{blob_id}", blob_id, index, 10)
        for number, (blob_id, index) in enumerate(places)
        if items[blob_id, index]
    ]
    by_id = {job.id: job for job in jobs}
    held = []
    for unit in replays.units(jobs, set(places)):
        first = by_id[unit.first_job_id]
        inside = [place for place in places if place[0] == first.blob_id and first.index <= place[1] <= unit.last_item]
        assert (unit.items, unit.payload_bytes) == (len(inside), 10 * len(inside))
        held += inside
    assert held == [(job.blob_id, job.index) for job in jobs]


async def test_jobs_whose_request_is_purged_are_queued_all_the_same(
    pool: Pool, conn: Connection, test_settings: Settings
) -> None:
    batch = await make_dead(pool, conn, [story()])
    conn.execute("DELETE FROM wp_novel_ingest_requests")
    assert replay(conn).queued == 1
    await work_off(pool, test_settings, "stories")
    assert states(conn, batch) == ["completed"]


async def test_a_payload_stays_for_the_whole_time_again_and_never_for_less(pool: Pool, conn: Connection) -> None:
    soon, late = await make_dead(pool, conn), await make_dead(pool, conn)
    conn.execute(
        "UPDATE wp_novel_ingest_payload_blobs SET expires_at = UTC_TIMESTAMP() + INTERVAL IF(id = %s, -1, 1000) DAY",
        (soon.blob_ids[0],),
    )
    replay(conn)
    rows = conn.fetch_all("SELECT id, DATEDIFF(expires_at, UTC_TIMESTAMP()) FROM wp_novel_ingest_payload_blobs")
    assert dict(rows) == {soon.blob_ids[0]: 30, late.blob_ids[0]: 1000}


# -- what goes wrong ------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, *, times: int) -> Callable[[], int]:
    """The last statement of a piece fails so many times; returns how to ask how often it was run."""
    note, runs = replays._note, 0

    def fail(conn: Connection, run: Run, *, state: str) -> None:
        nonlocal runs
        runs += 1
        if runs <= times:
            raise error
        note(conn, run, state=state)

    monkeypatch.setattr(replays, "_note", fail)
    return lambda: runs


async def test_a_piece_that_fails_changes_nothing(
    pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await make_dead(pool, conn, FRAMES)
    run, job_ids = begin_replay(conn)
    ran = failing(monkeypatch, pymysql.err.OperationalError(1142, "not allowed"), times=1)
    with pytest.raises(pymysql.err.OperationalError):
        replays.queue(conn, run, job_ids, wait=unhurried)
    assert ran() == 1
    assert set(states(conn, batch)) == {"dead_letter"}
    assert waiting_items(conn) == 0
    assert request_state(conn, batch) == ("failed", 0, 6)


@pytest.mark.parametrize("number", [1205, 1213, 1020, 1047])
async def test_a_piece_that_met_another_is_done_again_and_counts_once(
    pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    await make_dead(pool, conn, FRAMES)
    run, job_ids = begin_replay(conn)
    ran = failing(monkeypatch, pymysql.err.OperationalError(number, "met another"), times=2)
    waits: list[float] = []
    run = replays.queue(conn, run, job_ids, wait=waits.append)
    assert (ran(), len(waits), run.queued, waiting_items(conn)) == (3, 2, 6, 6)
    assert all(0 <= seconds <= retry.MAX_DELAY_SECONDS for seconds in waits)
    assert_consistent(conn)


async def test_a_piece_is_not_tried_for_ever(pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_dead(pool, conn)
    run, job_ids = begin_replay(conn)
    ran = failing(monkeypatch, pymysql.err.OperationalError(1213, "met another"), times=100)
    with pytest.raises(pymysql.err.OperationalError):
        replays.queue(conn, run, job_ids, wait=unhurried)
    assert ran() == retry.MAX_ATTEMPTS


# -- the journal, and the cost --------------------------------------------------------------------------


async def test_a_run_is_one_row_of_the_journal_that_each_piece_brings_up_to_date(pool: Pool, conn: Connection) -> None:
    gone = await make_dead(pool, conn, FRAMES[:1])
    lose_payload(conn, gone)
    await make_dead(pool, conn, FRAMES)
    run, job_ids = begin_replay(conn, source="truyen-a")
    [(message, context)] = journal(conn)
    assert message == "0 of 7 dead letters were queued again by anh (under way)."
    run = replays.queue(conn, run, job_ids[:4], wait=unhurried)
    [(message, context)] = journal(conn)
    assert (context["queued"], context["state"]) == (4, "under way")
    run = replays.queue(conn, run, job_ids[4:], wait=unhurried)
    replays.end(conn, run, stopped=False)
    [(message, context)] = journal(conn)
    assert message == "6 of 7 dead letters were queued again by anh (finished)."
    assert context == {
        "operator": "anh",
        "state": "finished",
        "filters": {"job_type": None, "since": None, "source": "truyen-a", "error_code": None, "request_id": None},
        "matched": 7,
        "queued": 6,
        "units": 2,
        "payload_gone": 1,
        "taken": 0,
    }
    assert replays.EVENT.startswith(SECURITY_EVENTS)  # so it is kept as long as what happened to keys


async def test_the_journal_says_of_a_run_that_it_was_stopped(pool: Pool, conn: Connection) -> None:
    await make_dead(pool, conn, FRAMES)
    run, job_ids = begin_replay(conn)
    run = replays.queue(conn, run, job_ids[:2], wait=unhurried)
    assert run.left == 4
    replays.end(conn, run, stopped=True)
    assert journal(conn)[0][1]["state"] == "stopped"


async def test_a_piece_costs_the_same_however_much_lies_beside_it(pool: Pool, conn: Connection) -> None:
    async def cost() -> int:
        batch = await make_dead(pool, conn, FRAMES)
        run, job_ids = begin_replay(conn, request_id=batch.request_id)
        return reads(conn, lambda: replays.queue(conn, run, job_ids, wait=unhurried))

    alone = await cost()
    completed = await make_batch(pool, FRAMES * 50)
    end(conn, completed, dead=())
    await make_dead(pool, conn, FRAMES * 50)
    assert 0 < await cost() <= alone + 10
