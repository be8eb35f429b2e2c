"""Sources share the workers: who has little to do does not wait for who has much."""

import asyncio

import pytest

from runtime.settings import Settings
from schema.connection import Connection
from store.pool import Pool
from tests.worker.batches import DONE, SOURCE, add_stories, chapter, count, ended, push
from tests.worker.looping import Wrapped, joined, make_loop, with_worker
from worker.loop import Shared

# The first by name: it must not be the order of names that serves the others.
CROWD = "a-crowd"
ITEMS = 300


@pytest.fixture
def crowd(conn: Connection) -> str:
    """A source with 100,000 items that wait: units without jobs, which workers end as empty."""
    conn.execute(
        "INSERT INTO wp_novel_ingest_ready (job_type, source, request_id, payload_blob_id, first_item, last_item,"
        " items, payload_bytes, next_run_at, created_at)"
        " SELECT 'chapters_bulk', %s, UUID(), 10000000 + seq, 0, %s, %s, 100000, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR,"
        " UTC_TIMESTAMP(6) - INTERVAL 1 HOUR FROM seq_1_to_334",
        (CROWD, ITEMS - 1, ITEMS),
    )
    assert conn.fetch_all("SELECT SUM(items) FROM wp_novel_ingest_ready")[0][0] >= 100_000
    return CROWD


@pytest.mark.parametrize("steps_before", [0, 1, 5])
async def test_one_item_beside_100_000_of_another_source_is_done_within_two_claims(
    pool: Pool, conn: Connection, test_settings: Settings, crowd: str, steps_before: int
) -> None:
    add_stories(conn)
    with joined(test_settings) as membership:
        working = make_loop(pool, membership, test_settings)
        for _ in range(steps_before):
            assert await working.step()
        request_id = push(conn, [chapter(1)])
        for _ in range(2):
            await working.step()
    assert ended(conn, request_id) == [DONE]
    assert count(conn, "ingest_ready", f"source = '{crowd}'") > 300


async def test_it_is_so_for_sets_in_flight_that_share_a_process(
    pool: Pool, conn: Connection, test_settings: Settings, crowd: str
) -> None:
    """All of them together need no more than two claims of the process, and one of each."""
    add_stories(conn)
    with joined(test_settings) as membership:
        shared = Shared()
        loops = [make_loop(pool, membership, test_settings, shared=shared) for _ in range(3)]
        await asyncio.gather(*(some.step() for some in loops))
        request_id = push(conn, [chapter(1)])
        await loops[0].step()
        await loops[1].step()
    assert ended(conn, request_id) == [DONE]


async def test_a_source_whose_items_killed_workers_gets_its_turn_too(
    pool: Pool, conn: Connection, test_settings: Settings, crowd: str
) -> None:
    """What came back from a crash goes alone: it must not wait for a claim that happens to be empty."""
    add_stories(conn)
    with joined(test_settings) as membership:
        working = make_loop(pool, membership, test_settings)
        await working.step()
        request_id = push(conn, [chapter(1)])
        conn.execute("UPDATE wp_novel_ingest_ready SET crashes = 2 WHERE source = %s", (SOURCE,))
        for _ in range(2):
            await working.step()
    assert [(item.status, item.attempts) for item in ended(conn, request_id)] == [("completed", 1)]


async def test_ten_small_sources_are_all_served_within_two_claims_beside_a_large_one(
    pool: Pool, conn: Connection, test_settings: Settings, crowd: str
) -> None:
    sources = [f"nguon-{number}" for number in range(10)]
    for source in sources:
        add_stories(conn, source=source)
    with joined(test_settings) as membership:
        working = make_loop(pool, membership, test_settings)
        await working.step()
        requests = [push(conn, [chapter(1)], source=source) for source in sources]
        for _ in range(2):
            await working.step()
    assert [ended(conn, request_id) for request_id in requests] == [[DONE]] * 10


async def test_a_poisoned_source_does_not_keep_the_others_from_their_turn(
    pool: Pool, conn: Connection, test_settings: Settings
) -> None:
    """Its items fail each time, and are due again at once."""
    settings = with_worker(test_settings, retry_seconds=(0.0,), max_attempts=1000)
    handler = Wrapped()
    other = "truyen-b"
    for source in (SOURCE, other):
        add_stories(conn, source=source)
    push(conn, [chapter(n) for n in range(1, 6)])

    async def fail(conn: object, jobs: object) -> None:
        assert isinstance(jobs, list)
        if any(job.unit.source == SOURCE for job in jobs):
            raise ValueError("ill")

    handler.before = fail
    with joined(settings) as membership:
        working = make_loop(pool, membership, settings, handler=handler, limit=5)
        await working.step()
        request_id = push(conn, [chapter(1)], source=other)
        for _ in range(2):
            await working.step()
    assert ended(conn, request_id) == [DONE]
