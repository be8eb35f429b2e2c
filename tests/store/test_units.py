"""Units are claimed once, in order, by who holds them then; what waits for a story is due when the story is there."""

import asyncio
from datetime import datetime

import pytest

from schema.connection import Connection as PlainConnection
from store import payloads, units
from store.connection import Connection
from store.pool import Pool
from store.units import LeaseLost, Unit
from tests.store import queue_factory as factory
from tests.store.counted_stories import Reads
from tests.store.counting import counted
from tests.store.queue_factory import SOURCE, Queued

_MANY_READY = """
    INSERT INTO wp_novel_ingest_ready
        (job_type, source, request_id, payload_blob_id, first_item, last_item, items, next_run_at, created_at)
    SELECT 'stories_bulk', CONCAT(%s, seq %% %s), UUID(), seq, 0, 0, 1,
        UTC_TIMESTAMP(6) + INTERVAL %s SECOND, UTC_TIMESTAMP(6)
    FROM seq_1_to_5000 WHERE seq <= %s
"""
_MANY_FINISHED = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_blob_id, payload_hash, status,
         next_run_at, created_at, updated_at)
    SELECT 'stories_bulk', %s, 'r', 'k', seq, 0, '', 2, UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP()
    FROM seq_1_to_20000
"""


def put(conn: PlainConnection, count: int, *, source: str = SOURCE, sources: int = 1, due_in: int = -1) -> None:
    """So many units of one item each, spread over sources whose names end with a number."""
    conn.execute(_MANY_READY, (source, sources, due_in, count))


def unit(number: int = 1, *, items: int = 1, crashes: int = 0) -> Unit:
    at = datetime(2026, 1, 1)
    return Unit(number, payloads.STORIES, SOURCE, "r", 1, 0, items - 1, items, 10, 0, crashes, at, at)


def deadlocks() -> float:
    return counted("novel_database_retries_total", error="1213")


# -- claims ---------------------------------------------------------------------------------------------


async def test_two_workers_that_claim_at_once_never_get_the_same_unit(pool: Pool, conn: PlainConnection) -> None:
    put(conn, 400, sources=3)
    before = deadlocks()

    async def work_off(worker_id: int) -> list[int]:
        taken: list[int] = []
        while claimed := await factory.claim(pool, worker_id, max_items=3, max_units=2):
            taken += [unit.id for unit in claimed]
        return taken

    everything = {row[0] for row in conn.fetch_all("SELECT id FROM wp_novel_ingest_ready")}
    first, second = (factory.join(conn) for _ in range(2))
    of_first, of_second = await asyncio.gather(work_off(first), work_off(second))
    # One who finds everything locked may stop early.
    rest = await work_off(first)
    taken = of_first + of_second + rest
    assert len(taken) == len(set(taken)) == 400
    assert set(taken) == everything
    assert of_first
    assert of_second
    holders: dict[int, int] = dict(
        conn.fetch_all("SELECT worker_id, COUNT(*) FROM wp_novel_ingest_leases GROUP BY worker_id")
    )
    assert holders == {first: len(of_first + rest), second: len(of_second)}
    assert deadlocks() == before


async def test_a_claim_passes_over_what_another_is_taking_and_does_not_wait(pool: Pool, conn: PlainConnection) -> None:
    put(conn, 5)
    first, second = (factory.join(conn) for _ in range(2))
    has_taken, may_commit = asyncio.Event(), asyncio.Event()

    async def slowly(writing: Connection) -> list[Unit]:
        taken = await units.claim(
            writing, [f"{SOURCE}0"], job_type=payloads.STORIES, worker_id=first, max_items=2, max_units=2
        )
        has_taken.set()
        await may_commit.wait()
        return taken

    async with asyncio.timeout(20):
        slow = asyncio.create_task(pool.transaction(slowly))
        await has_taken.wait()
        quick = await factory.claim(pool, second)
        may_commit.set()
        assert [unit.blob_id for unit in quick] == [3, 4, 5]
        assert [unit.blob_id for unit in await slow] == [1, 2]


async def test_a_claim_that_is_rolled_back_takes_nothing(pool: Pool, conn: PlainConnection) -> None:
    request_id = await factory.enqueue(pool)
    worker_id = factory.join(conn)

    async def fails(writing: Connection) -> None:
        assert await units.claim(
            writing, [SOURCE], job_type=payloads.STORIES, worker_id=worker_id, max_items=9, max_units=9
        )
        raise RuntimeError("before COMMIT")

    with pytest.raises(RuntimeError, match="before COMMIT"):
        await pool.transaction(fails)
    assert factory.ready(conn) == [Queued(0, 2, 3, 0, 0)]
    assert factory.leased(conn, worker_id) == []
    assert factory.counts(conn, request_id).status == "queued"


async def test_units_come_in_the_order_in_which_they_are_due(pool: Pool, conn: PlainConnection) -> None:
    for due_in in (-10, -30, 60, -20, -30):
        put(conn, 1, due_in=due_in)
    ids = [row[0] for row in conn.fetch_all("SELECT id FROM wp_novel_ingest_ready ORDER BY id")]
    claimed = await factory.claim(pool, factory.join(conn))
    # Times of the same second differ in their fractions: the earlier of the two was put first.
    assert [unit.id for unit in claimed] == [ids[1], ids[4], ids[3], ids[0]]


async def test_only_sources_and_types_that_are_due_are_worked(pool: Pool, conn: PlainConnection) -> None:
    put(conn, 2, source="due")
    put(conn, 2, source="later", due_in=60)
    await factory.enqueue(pool, source="chapters", job_type=payloads.CHAPTERS)
    async with pool.reading() as reading:
        assert await units.due_sources(reading, payloads.STORIES) == ["due0"]
        assert await units.due_sources(reading, payloads.CHAPTERS) == ["chapters"]
    claimed = await factory.claim(pool, factory.join(conn), sources=["later0", "due0", "chapters", "nobody"])
    assert [unit.source for unit in claimed] == ["due0", "due0"]


async def test_sources_are_served_in_the_order_that_was_asked_for(pool: Pool, conn: PlainConnection) -> None:
    put(conn, 300, source="a")
    put(conn, 1, source="b")
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id, sources=["b0", "a0"], max_items=5, max_units=3)
    assert [unit.source for unit in claimed] == ["b0", "a0", "a0", "a0"]


async def test_a_request_is_processing_from_its_first_claim_on(pool: Pool, conn: PlainConnection) -> None:
    taken, other = [await factory.enqueue(pool, indexes=[index]) for index in range(2)]
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id, max_items=1)
    assert [unit.request_id for unit in claimed] == [taken]
    assert factory.counts(conn, taken).status == "processing"
    assert factory.counts(conn, other).status == "queued"
    await factory.end(pool, claimed, worker_id, factory.again)
    conn.execute("UPDATE wp_novel_ingest_requests SET status = 4 WHERE request_id = %s", (taken,))
    assert len(await factory.claim(pool, worker_id)) == 2
    assert factory.counts(conn, taken).status == "failed"


@pytest.mark.parametrize("waiting", [0, 3000])
async def test_a_claim_reads_what_it_takes_however_much_lies_beside_it(
    pool: Pool, conn: PlainConnection, waiting: int
) -> None:
    conn.execute(_MANY_FINISHED, (SOURCE,))
    put(conn, 5000, source="due", sources=2, due_in=3600)
    put(conn, 1000, source="later", sources=200, due_in=3600)
    if waiting:
        put(conn, waiting, source="due", sources=2)
    put(conn, 4, source="due", sources=2, due_in=-60)
    worker_id = factory.join(conn)

    async def work(writing: Connection) -> tuple[Reads, Reads, list[Unit]]:
        async with Reads(writing) as looking:
            due = await units.due_sources(writing, payloads.STORIES)
        async with Reads(writing) as claiming:
            claimed = await units.claim(
                writing, due, job_type=payloads.STORIES, worker_id=worker_id, max_items=4, max_units=2
            )
        return looking, claiming, claimed

    looking, claiming, claimed = await pool.transaction(work)
    assert sorted(unit.source for unit in claimed) == ["due0", "due0", "due1", "due1"]
    sources = 202
    # One jump to each source, and the group that comes out for it.
    assert looking.entries <= 2 * sources + 4
    assert looking.rows <= 2 * sources + 4
    # Of each source its two units and the entry after them; the lists of ids to delete and requests to mark.
    assert claiming.entries <= 2 * 3
    assert claiming.rows <= 3 * (4 + 4) + 4


@pytest.mark.parametrize(
    ("due", "taken", "chosen"),
    [
        ([unit(1, items=3), unit(2, items=3), unit(3)], [], [1, 2, 3]),
        ([unit(1, items=8), unit(2, items=3), unit(3)], [], [1]),  # in order: the third does not overtake the second
        ([unit(1, items=99)], [], [1]),  # too large for any claim, and taken nevertheless
        ([unit(1, items=99)], [unit(9)], []),
        ([unit(1, crashes=1), unit(2)], [], [1]),
        ([unit(1), unit(2, crashes=1), unit(3)], [], [1]),
        ([unit(1, crashes=1)], [unit(9)], []),
        ([], [], []),
    ],
)
def test_what_fits_is_chosen_and_what_crashed_goes_alone(due: list[Unit], taken: list[Unit], chosen: list[int]) -> None:
    assert [one.id for one in units.choose(due, taken=taken, max_items=10)] == chosen


async def test_what_crashed_is_claimed_alone_also_beside_another_source(pool: Pool, conn: PlainConnection) -> None:
    put(conn, 1, source="a")
    conn.execute("UPDATE wp_novel_ingest_ready SET crashes = 1")
    put(conn, 2, source="b")
    worker_id = factory.join(conn)
    assert [unit.source for unit in await factory.claim(pool, worker_id, sources=["a0", "b0"])] == ["a0"]
    assert [unit.source for unit in await factory.claim(pool, worker_id)] == ["b0", "b0"]


# -- leases ---------------------------------------------------------------------------------------------


async def test_stale_lease_cannot_complete_retry_or_give_back_a_rescued_unit(pool: Pool, conn: PlainConnection) -> None:
    request_id = await factory.enqueue(pool)
    stopped, rescuer = (factory.join(conn) for _ in range(2))
    claimed = await factory.claim(pool, stopped)
    assert await factory.rescue(pool, stopped) is not None
    again = await factory.claim(pool, rescuer)
    for fate in (factory.done, factory.again, factory.failed, factory.dead):
        with pytest.raises(LeaseLost):
            await factory.end(pool, claimed, stopped, fate)
    with pytest.raises(LeaseLost):
        await factory.give_back(pool, claimed, stopped)
    assert factory.ready(conn) == []
    assert factory.leased(conn, rescuer) == [Queued(0, 2, 3, 0, 1)]
    assert factory.statuses(conn, request_id) == ["queued"] * 3
    await factory.end(pool, again, rescuer, factory.done)
    assert factory.statuses(conn, request_id) == ["completed"] * 3


async def test_one_lost_lease_of_a_set_keeps_all_of_it_from_ending(pool: Pool, conn: PlainConnection) -> None:
    requests = [await factory.enqueue(pool) for _ in range(2)]
    mine, other = (factory.join(conn) for _ in range(2))
    claimed = await factory.claim(pool, mine)
    assert len(claimed) == 2
    conn.execute("UPDATE wp_novel_ingest_leases SET worker_id = %s WHERE id = %s", (other, claimed[1].id))
    with pytest.raises(LeaseLost):
        await factory.end(pool, claimed, mine, factory.done)
    assert [factory.statuses(conn, request_id) for request_id in requests] == [["queued"] * 3] * 2
    async with pool.reading() as reading:
        assert [unit.id for unit in await units.held(reading, worker_id=mine)] == [claimed[0].id]


async def test_what_is_given_back_is_as_it_was_and_comes_first_again(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool)
    await factory.enqueue(pool, indexes=[5])
    worker_id, next_one = (factory.join(conn) for _ in range(2))
    everything = "SELECT * FROM wp_novel_ingest_ready ORDER BY id"
    before = conn.fetch_all(everything)
    claimed = await factory.claim(pool, worker_id)
    await factory.give_back(pool, claimed, worker_id)
    assert conn.fetch_all(everything) == before
    assert [unit.id for unit in await factory.claim(pool, next_one)] == [row[0] for row in before]
    with pytest.raises(LeaseLost):
        await factory.give_back(pool, claimed, worker_id)


async def test_giving_back_nothing_is_nothing(pool: Pool, conn: PlainConnection) -> None:
    await factory.give_back(pool, [], factory.join(conn))


# -- waiting for stories --------------------------------------------------------------------------------


async def wait_for(pool: Pool, conn: PlainConnection, *refs: str, source: str = SOURCE) -> None:
    """One item waits for each of these stories, for an hour."""
    worker_id = factory.join(conn)
    await factory.enqueue(pool, indexes=range(len(refs)), source=source)
    await factory.end(
        pool,
        await factory.claim(pool, worker_id, sources=[source]),
        worker_id,
        lambda job: factory.again(job, delay_seconds=3600, story=refs[job.index]),
    )


async def test_what_waits_is_due_as_soon_as_its_story_is_there_and_no_sooner(pool: Pool, conn: PlainConnection) -> None:
    await wait_for(pool, conn, "x", "y", "x")
    assert await factory.release(pool, "x", "y") == 0
    factory.add_story(conn, "x", source="another")
    assert await factory.release(pool, "x", "y") == 0
    assert await factory.claim(pool, factory.join(conn)) == []
    factory.add_story(conn, "x")
    assert await factory.release(pool, "x", "y") == 2
    assert [unit.first for unit in await factory.claim(pool, factory.join(conn))] == [0, 2]
    assert factory.ready(conn) == [Queued(1, 1, 1, 1, 0, "y")]
    assert await factory.release(pool, "x", "y") == 0


async def test_stories_are_told_apart_byte_by_byte_also_where_they_are_waited_for(
    pool: Pool, conn: PlainConnection
) -> None:
    names = ("abc", "Abc", "abc ", "ábc", 'a"\\b', "😀", "Ấ" * 191, "x" * 191)
    await wait_for(pool, conn, *names)
    for name in names:
        factory.add_story(conn, name)
        assert await factory.release(pool, *names) == 1
        assert name not in [queued.waiting_for for queued in factory.ready(conn)]


async def test_what_is_due_already_keeps_its_place_when_its_story_comes(pool: Pool, conn: PlainConnection) -> None:
    await wait_for(pool, conn, "x")
    conn.execute("UPDATE wp_novel_ingest_ready SET next_run_at = '2026-01-01'")
    factory.add_story(conn, "x")
    assert await factory.release(pool, "x") == 1
    assert conn.fetch_all("SELECT next_run_at FROM wp_novel_ingest_ready") == [(datetime(2026, 1, 1),)]


async def test_a_release_reads_only_what_waits_for_its_stories(pool: Pool, conn: PlainConnection) -> None:
    put(conn, 3000, source=SOURCE)
    conn.execute("UPDATE wp_novel_ingest_ready SET source = %s, waiting_for = CONCAT('s', id MOD 1000)", (SOURCE,))
    put(conn, 1000, source=SOURCE, due_in=3600)
    for ref in ("s1", "s2", "s3"):
        factory.add_story(conn, ref)

    async def work(writing: Connection) -> tuple[Reads, int]:
        async with Reads(writing) as reads:
            released = await units.release_waiting(writing, [(SOURCE, f"s{number}") for number in (1, 2, 500_000)])
        return reads, released

    reads, released = await pool.transaction(work)
    assert released == 6
    assert reads.entries <= released + 3
    assert reads.rows <= 3 * (3 + released) + 8


async def test_a_release_and_a_claim_of_the_same_units_do_not_deadlock(pool: Pool, conn: PlainConnection) -> None:
    """They come by two indexes, so neither may lock what it has only looked at."""
    first, second = (factory.join(conn) for _ in range(2))
    factory.add_story(conn, "x")
    before = deadlocks()

    async def work_off(worker_id: int) -> int:
        taken = 0
        while claimed := await factory.claim(pool, worker_id, max_units=5):
            taken += len(claimed)
        return taken

    async def release() -> None:
        for _ in range(12):
            await factory.release(pool, "x")

    for _ in range(6):
        put(conn, 200, source=SOURCE)
        conn.execute("UPDATE wp_novel_ingest_ready SET source = %s, waiting_for = 'x'", (SOURCE,))
        taken = sum(filter(None, await asyncio.gather(work_off(first), work_off(second), release())))
        assert taken + await work_off(first) == 200
    assert deadlocks() == before


async def test_the_stories_that_are_waited_for_come_in_pages(pool: Pool, conn: PlainConnection) -> None:
    await wait_for(pool, conn, "b", "a", "b", "c", source="s2")
    await wait_for(pool, conn, "z", source="s1")
    await factory.enqueue(pool, source="s1")
    after, pages = ("", ""), []
    async with pool.reading() as reading:
        while page := await units.waited_for(reading, after=after, limit=2):
            pages.append(page)
            after = page[-1]
    assert pages == [[("s1", "z"), ("s2", "a")], [("s2", "b"), ("s2", "c")]]
