"""What became of items is counted until it is written: nothing is lost, nothing comes twice."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import errors, minutes
from store.connection import Connection
from store.jobs import COMPLETED, DEAD, FAILED, QUEUED, Job, Verdict
from store.minutes import Tally
from store.pool import Pool
from store.units import Unit
from worker.tallies import Tallies

OUTCOMES = {
    "completed": (COMPLETED, False),
    "stale": (COMPLETED, True),
    "retried": (QUEUED, False),
    "failed": (FAILED, False),
    "dead": (DEAD, False),
}


def verdict(outcome: str, *, job_type: str = "stories_bulk", source: str = "a") -> Verdict:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    unit = Unit(
        id=1,
        job_type=job_type,
        source=source,
        request_id="r",
        blob_id=1,
        first=0,
        last=0,
        items=1,
        payload_bytes=1,
        attempts=0,
        crashes=0,
        next_run_at=at,
        created_at=at,
    )
    status, is_stale = OUTCOMES[outcome]
    return Verdict(job=Job(1, unit, 0, 1, None), status=status, attempts=1, is_stale=is_stale)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_is_counted_as_itself_alone(outcome: str) -> None:
    tallies = Tallies()
    tallies.add([verdict(outcome)] * 3)
    tallies.add([verdict(outcome)])
    (tally,) = tallies.take()
    assert {name: getattr(tally, name) for name in OUTCOMES} == {name: 4 * (name == outcome) for name in OUTCOMES}


def test_job_types_and_sources_are_counted_apart_and_come_in_their_order() -> None:
    tallies = Tallies()
    tallies.add([verdict("completed", source="b"), verdict("failed", job_type="chapters_bulk", source="z")])
    tallies.add([verdict("completed"), verdict("stale", source="b")])
    assert tallies.take() == [
        Tally(job_type="chapters_bulk", source="z", failed=1),
        Tally(job_type="stories_bulk", source="a", completed=1),
        Tally(job_type="stories_bulk", source="b", completed=1, stale=1),
    ]


def test_what_was_taken_is_not_taken_again() -> None:
    tallies = Tallies()
    assert tallies.take() == []
    tallies.add([])
    assert tallies.take() == []
    tallies.add([verdict("dead")])
    assert len(tallies.take()) == 1
    assert tallies.take() == []


def test_what_could_not_be_written_is_counted_with_what_came_meanwhile() -> None:
    tallies = Tallies()
    tallies.add([verdict(outcome) for outcome in OUTCOMES])
    taken = tallies.take()
    tallies.add([verdict("completed"), verdict("completed", source="b")])
    tallies.put_back(taken)
    assert tallies.take() == [
        Tally(job_type="stories_bulk", source="a", completed=2, stale=1, retried=1, failed=1, dead=1),
        Tally(job_type="stories_bulk", source="b", completed=1),
    ]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(
        st.tuples(st.lists(st.tuples(st.sampled_from(sorted(OUTCOMES)), st.sampled_from("ab"))), st.booleans()),
        max_size=6,
    )
)
async def test_the_minutes_add_up_to_the_jobs_that_were_counted_whenever_the_database_is_away(
    pool: Pool, rounds: list[tuple[list[tuple[str, str]], bool]]
) -> None:
    await pool.transaction(lambda conn: conn.execute("DELETE FROM wp_novel_ingest_minutes"))
    tallies, expected = Tallies(), Counter[tuple[str, str]]()
    for ended, is_away in [*rounds, ([], False)]:
        tallies.add([verdict(outcome, source=source) for outcome, source in ended])
        expected.update(ended)
        rows = tallies.take()

        async def write(conn: Connection, rows: list[Tally] = rows, is_away: bool = is_away) -> None:
            await minutes.add(conn, rows)
            if is_away:
                raise errors.DatabaseUnavailable("away before COMMIT")

        try:
            await pool.transaction(write)
        except errors.DatabaseUnavailable:
            tallies.put_back(rows)
    async with pool.reading() as conn:
        found = await minutes.last(conn, minutes=60)
    written = Counter[tuple[str, str]]()
    for row in found:
        written.update({(outcome, row.source): getattr(row, outcome) for outcome in OUTCOMES})
    assert +written == +expected
