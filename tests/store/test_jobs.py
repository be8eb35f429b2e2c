"""What became of each item is written once, with its effects; items with different fates go their own ways."""

import asyncio
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.connection import Connection as PlainConnection
from store import dead_letters, jobs, payloads, replays
from store.connection import Connection
from store.dead_letters import Wanted
from store.jobs import Job, Verdict
from store.payloads import StoryFrame
from store.pool import Pool
from store.units import LeaseLost, Unit
from tests.store import queue_factory as factory
from tests.store.counted_stories import Reads
from tests.store.counting import counted
from tests.store.queue_factory import SOURCE, Queued

_PAYLOAD_MINUTES_LEFT = """
    SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), expires_at + INTERVAL 30 SECOND) FROM wp_novel_ingest_payload_blobs
    ORDER BY id
"""
DAY_MINUTES = 24 * 60


def refs(loaded: list[Job]) -> list[str | None]:
    return [job.frame.source_story_id if isinstance(job.frame, StoryFrame) else None for job in loaded]


def by_index(*fates: factory.Fate) -> factory.Fate:
    """A fate for each item of the batch."""
    return lambda job: fates[job.index](job)


def waits(story: str) -> factory.Fate:
    return lambda job: factory.again(job, delay_seconds=60, story=story)


# -- loading --------------------------------------------------------------------------------------------


async def test_jobs_come_with_their_own_payloads_in_the_order_of_units_and_items(
    pool: Pool, conn: PlainConnection
) -> None:
    await factory.enqueue(pool, indexes=(0, 2, 3, 9), max_blob_bytes=100)
    await factory.enqueue(pool, indexes=(1, 4))
    claimed = await factory.claim(pool, factory.join(conn))
    assert len(claimed) > 2
    loaded = await factory.load(pool, claimed)
    assert refs(loaded) == ["s0", "s2", "s3", "s9", "s1", "s4"]
    assert [job.unit.id for job in loaded] == [unit.id for unit in claimed for _ in range(unit.items)]
    backwards = await factory.load(pool, claimed[::-1])
    assert [job.unit.id for job in backwards] == [unit.id for unit in claimed[::-1] for _ in range(unit.items)]


async def test_parts_of_one_blob_come_with_their_own_payloads(pool: Pool, conn: PlainConnection) -> None:
    """As several units of one claim, of which the blob is read once, and only as much of it as they need."""
    await factory.enqueue(pool, indexes=range(9))
    worker_id = factory.join(conn)
    fates = {2: waits("x"), 3: waits("x"), 5: factory.again, 6: factory.again}
    claimed = await factory.claim(pool, worker_id)
    await factory.end(pool, claimed, worker_id, lambda job: fates.get(job.index, factory.done)(job))
    factory.make_due(conn)
    loaded = await factory.load(pool, await factory.claim(pool, worker_id))
    assert sorted(zip([job.index for job in loaded], refs(loaded), strict=True)) == [
        (index, f"s{index}") for index in (2, 3, 5, 6)
    ]


async def test_a_job_that_has_ended_is_not_loaded(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool)
    claimed = await factory.claim(pool, factory.join(conn))
    conn.execute("UPDATE wp_novel_ingest_jobs SET status = 2 WHERE item_index = 1")
    assert refs(await factory.load(pool, claimed)) == ["s0", "s2"]
    conn.execute("UPDATE wp_novel_ingest_jobs SET status = 2")
    assert await factory.load(pool, claimed) == []


@pytest.mark.parametrize(
    ("damage", "readable"),
    [
        ("DELETE FROM wp_novel_ingest_payload_blobs", []),
        ("UPDATE wp_novel_ingest_payload_blobs SET payload_blob = ''", []),
        (
            "UPDATE wp_novel_ingest_payload_blobs SET payload_blob = LEFT(payload_blob, LENGTH(payload_blob) - 1)",
            [0, 1],
        ),
        ("UPDATE wp_novel_ingest_payload_blobs SET payload_blob = INSERT(payload_blob, 1, 1, X'C1')", [1, 2]),
        ("UPDATE wp_novel_ingest_jobs SET payload_offset = 4000000000 WHERE item_index = 1", [0, 2]),
        ("UPDATE wp_novel_ingest_jobs SET payload_size_bytes = 0 WHERE item_index = 1", [0, 2]),
        ("UPDATE wp_novel_ingest_jobs SET payload_size_bytes = 5 WHERE item_index = 2", [0, 1]),
    ],
)
async def test_a_damaged_payload_costs_only_its_own_item(
    pool: Pool, conn: PlainConnection, damage: str, readable: list[int]
) -> None:
    request_id = await factory.enqueue(pool)
    conn.execute(damage)
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    loaded = await factory.load(pool, claimed)
    assert [job.index for job in loaded] == [0, 1, 2]
    assert [job.index for job in loaded if job.frame is not None] == readable
    await factory.end(pool, claimed, worker_id, lambda job: factory.done(job) if job.frame else factory.failed(job))
    assert factory.statuses(conn, request_id) == ["completed" if index in readable else "failed" for index in range(3)]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 59), st.binary(min_size=1, max_size=4))
def test_no_bytes_whatever_keep_their_neighbours_from_being_read(noise: bytes, place: int, put: bytes) -> None:
    frame = factory.item(7).frame
    changed = frame[:place] + put + frame[place + len(put) :]
    content = noise + changed + frame
    found = payloads.decode_many(
        [(content, 0, len(noise)), (content, len(noise), len(changed)), (content, len(noise + changed), len(frame))]
    )
    assert found[2] == payloads.decode(frame)


# -- writing --------------------------------------------------------------------------------------------


async def test_items_with_different_fates_go_their_own_ways(pool: Pool, conn: PlainConnection) -> None:
    request_id = await factory.enqueue(pool, indexes=range(10))
    worker_id = factory.join(conn)
    fates = by_index(
        *(factory.done, factory.stale, factory.again, factory.again, waits("x")),
        *(waits("x"), waits("y"), factory.failed, waits("y"), factory.dead),
    )
    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, fates)
    assert factory.statuses(conn, request_id) == [
        *("completed", "stale", "queued", "queued", "queued"),
        *("queued", "queued", "failed", "queued", "dead"),
    ]
    assert factory.attempts(conn, request_id) == [1] * 10
    # Those that wait for the same story stay together, unless something else lies between them.
    assert factory.ready(conn) == [
        Queued(2, 2, 1, 1, 0),
        Queued(3, 3, 1, 1, 0),
        Queued(4, 5, 2, 1, 0, "x"),
        Queued(6, 6, 1, 1, 0, "y"),
        Queued(8, 8, 1, 1, 0, "y"),
    ]
    assert factory.uncovered(conn) == []
    assert conn.fetch_all(
        "SELECT error_code, last_error FROM wp_novel_ingest_jobs WHERE item_index IN (0, 2, 4, 7, 9) ORDER BY id"
    ) == [
        (None, None),
        ("apply_failed", "Not yet."),
        ("story_not_found", "Not yet."),
        ("slug_conflict", "It is taken."),
        ("apply_failed", "It fails."),
    ]


async def test_the_parts_weigh_as_much_as_the_whole(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool, indexes=range(6))
    before = conn.fetch_all("SELECT SUM(items), SUM(payload_bytes) FROM wp_novel_ingest_ready")
    worker_id = factory.join(conn)
    fates = by_index(*(waits("x"),) * 3, factory.again, *(waits("y"),) * 2)
    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, fates)
    assert len(factory.ready(conn)) == 3
    assert conn.fetch_all("SELECT SUM(items), SUM(payload_bytes) FROM wp_novel_ingest_ready") == before


async def test_neighbours_of_different_units_are_not_put_together(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool, indexes=range(4), max_blob_bytes=70)
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    assert len(claimed) > 1
    await factory.end(pool, claimed, worker_id, waits("x"))
    assert len(factory.ready(conn)) == len(claimed)
    assert factory.uncovered(conn) == []


async def test_a_wait_is_as_long_as_it_was_said(pool: Pool, conn: PlainConnection) -> None:
    await factory.enqueue(pool, indexes=range(2))
    worker_id = factory.join(conn)
    delays = (0.5, 100_000.25)

    def fate(job: Job) -> Verdict:
        return factory.again(job, delay_seconds=delays[job.index])

    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, fate)
    rows = conn.fetch_all("SELECT next_run_at FROM wp_novel_ingest_ready ORDER BY first_item")
    times: list[datetime] = [row[0] for row in rows]
    assert (times[1] - times[0]).total_seconds() == delays[1] - delays[0]


async def test_a_job_that_has_ended_ends_no_second_time(pool: Pool, conn: PlainConnection) -> None:
    request_id = await factory.enqueue(pool)
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    loaded = await factory.load(pool, claimed)
    conn.execute("UPDATE wp_novel_ingest_jobs SET status = 3 WHERE item_index = 1")
    for fate in (factory.done, factory.again, factory.failed):
        verdicts = [fate(job) for job in loaded]
        with pytest.raises(LeaseLost):
            await pool.transaction(partial(jobs.write, verdicts=verdicts, payload_minutes=1))
    assert factory.statuses(conn, request_id) == ["queued", "failed", "queued"]
    assert factory.ready(conn) == []
    assert factory.counts(conn, request_id).processed == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.text(max_size=40) | st.text(alphabet='"\\\0\x1f😀Ấ\n/', min_size=990, max_size=1010))
async def test_an_error_is_read_as_it_was_written(pool: Pool, conn: PlainConnection, message: str) -> None:
    await _is_read_as_written(pool, conn, message, message[:1000])


async def test_an_error_that_is_no_text_does_not_keep_its_neighbours_from_ending(
    pool: Pool, conn: PlainConnection
) -> None:
    await _is_read_as_written(pool, conn, "half \ud83d of a pair", "half ? of a pair")


async def _is_read_as_written(pool: Pool, conn: PlainConnection, message: str, read: str) -> None:
    request_id = await factory.enqueue(pool)
    worker_id = factory.join(conn)

    def bad(job: Job) -> Verdict:
        return factory.dead(job, message=message)

    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, by_index(factory.done, bad, factory.done))
    assert factory.statuses(conn, request_id) == ["completed", "dead", "completed"]
    wanted = "SELECT last_error FROM wp_novel_ingest_{} WHERE request_id = %s AND last_error IS NOT NULL"
    expected = [(read,)] if message else []
    for table in ("jobs", "requests"):
        assert conn.fetch_all(wanted.format(table), (request_id,)) == expected


async def test_a_payload_that_no_item_needs_expires_soon_and_no_other(pool: Pool, conn: PlainConnection) -> None:
    worker_id = factory.join(conn)
    for fates in (
        (factory.done, factory.done),
        (factory.stale, factory.done),
        (factory.done, factory.again),
        (factory.done, factory.failed),
        (factory.dead, factory.done),
        (waits("x"), waits("x")),
    ):
        await factory.enqueue(pool, indexes=range(2))
        await factory.end(pool, await factory.claim(pool, worker_id), worker_id, by_index(*fates))
        conn.execute("UPDATE wp_novel_ingest_ready SET next_run_at = '2999-01-01'")
    left = [minutes for (minutes,) in conn.fetch_all(_PAYLOAD_MINUTES_LEFT)]
    assert [minutes <= factory.PAYLOAD_MINUTES for minutes in left] == [True, True, False, False, False, False]
    assert min(left[2:]) >= 29 * DAY_MINUTES
    factory.make_due(conn)
    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.done)
    left = [minutes for (minutes,) in conn.fetch_all(_PAYLOAD_MINUTES_LEFT)]
    assert [minutes <= factory.PAYLOAD_MINUTES for minutes in left] == [True, True, True, False, False, True]


async def test_an_end_reads_its_own_jobs_and_no_others(pool: Pool, conn: PlainConnection) -> None:
    """However many others wait or are dead: to find out whether a payload is needed is not to look at all of them."""
    conn.execute(
        "INSERT INTO wp_novel_ingest_jobs (job_type, source, request_id, idempotency_key, external_ref,"
        " payload_blob_id, payload_hash, status, next_run_at, created_at, updated_at)"
        " SELECT 'stories_bulk', %s, 'r', 'k', seq, 0, '', ELT(1 + seq MOD 3, 0, 3, 4), UTC_TIMESTAMP(),"
        " UTC_TIMESTAMP(), UTC_TIMESTAMP() FROM seq_1_to_3000",
        (SOURCE,),
    )
    await factory.enqueue(pool, indexes=range(20))
    claimed = await factory.claim(pool, factory.join(conn))
    async with pool.reading() as reading, Reads(reading) as loading:
        loaded = await jobs.load(reading, claimed)

    async def work(writing: Connection) -> Reads:
        async with Reads(writing) as reads:
            await jobs.write(writing, [factory.done(job) for job in loaded], payload_minutes=1)
        return reads

    ending = await pool.transaction(work)
    assert loading.entries <= len(loaded) + 1
    assert ending.entries <= len(loaded) + 1
    assert ending.rows <= 3 * len(loaded) + 20


# -- several at once ------------------------------------------------------------------------------------


class Paused:
    """A connection that waits before its first question: jobs are written by then, and not yet counted."""

    def __init__(self, conn: Connection, asks: asyncio.Event, may_ask: asyncio.Event) -> None:
        self._conn, self._asks, self._may_ask = conn, asks, may_ask
        self.execute, self.execute_many = conn.execute, conn.execute_many

    async def fetch_all(self, *arguments: Any) -> Any:
        self._asks.set()
        await self._may_ask.wait()
        return await self._conn.fetch_all(*arguments)


async def test_who_ends_an_item_does_not_wait_for_another_of_the_same_payload(
    pool: Pool, conn: PlainConnection
) -> None:
    """Else the two would wait for each other: one for a job, to see if the payload is needed, one for the counters."""
    request_id = await factory.enqueue(pool, indexes=range(2))
    worker_id = factory.join(conn)
    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.again)
    one, other = await factory.claim(pool, worker_id)
    verdicts = [factory.done(job) for job in await factory.load(pool, [other])]
    asks, may_ask = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(20):
        through = partial(Paused, asks=asks, may_ask=may_ask)
        slow = asyncio.create_task(factory.write(pool, [other], worker_id, verdicts, through=through))
        await asks.wait()
        await factory.end(pool, [one], worker_id, factory.done)
        may_ask.set()
        await slow
    assert factory.counts(conn, request_id).status == "completed"


async def test_two_workers_who_end_retry_release_and_replay_never_wait_in_a_circle(
    pool: Pool, conn: PlainConnection
) -> None:
    factory.add_story(conn, "x")
    before = counted("novel_database_retries_total", error="1213")
    fates = (factory.done, waits("x"), factory.dead, factory.again, waits("x"), factory.failed)
    is_over = asyncio.Event()

    tries: Counter[int] = Counter()

    def fate(job: Job) -> Verdict:
        """All of it is done at the fourth try; a replay counts attempts anew."""
        tries[job.id] += 1
        return (fates[(job.index + tries[job.id]) % 6] if tries[job.id] < 4 else factory.done)(job)

    async def work_off(worker_id: int) -> None:
        while claimed := await factory.claim(pool, worker_id, max_items=20, max_units=12):
            await factory.end(pool, claimed, worker_id, fate)

    async def look_after() -> None:
        while not is_over.is_set():
            await factory.release(pool, "x")
            await asyncio.to_thread(replay, conn)
            await asyncio.sleep(0.01)

    async with asyncio.timeout(60):
        workers = [factory.join(conn) for _ in range(2)]
        for _ in range(3):
            requests = [await factory.enqueue(pool, indexes=range(60), max_blob_bytes=1500) for _ in range(2)]
            looking_after = asyncio.create_task(look_after())
            while {status for request_id in requests for status in await _statuses(pool, request_id)} - {2}:
                await asyncio.gather(*(work_off(worker_id) for worker_id in workers))
            is_over.set()
            await looking_after
            is_over.clear()
            for request_id in requests:
                assert factory.counts(conn, request_id).status == "completed"
                assert factory.counts(conn, request_id).processed == 60
    assert factory.ready(conn) == []
    assert factory.uncovered(conn) == []
    assert counted("novel_database_retries_total", error="1213") == before


async def _statuses(pool: Pool, request_id: str) -> list[int]:
    async with pool.reading() as reading:
        rows = await reading.fetch_all("SELECT status FROM wp_novel_ingest_jobs WHERE request_id = %s", (request_id,))
    return [status for (status,) in rows]


def replay(conn: PlainConnection) -> None:
    """Queue all that is dead or failed for its slug, again and again."""
    for code in (None, "slug_conflict"):
        wanted = Wanted(until=dead_letters.now(conn), error_code=code)
        found = dead_letters.find(conn, wanted)
        if found.job_ids:
            run = replays.begin(conn, wanted, found, operator="an operator")
            replays.queue(conn, run, found.job_ids, wait=lambda _: None)


def test_units_are_values() -> None:
    at = datetime(2026, 1, 1)
    one = Unit(1, payloads.STORIES, SOURCE, "r", 2, 0, 4, 5, 100, 1, 0, at, at)
    assert one.values() == (1, payloads.STORIES, SOURCE, "r", 2, 0, 4, 5, 100, 1, 0, at, at)
