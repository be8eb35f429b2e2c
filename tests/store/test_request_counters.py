"""The counters of a request are those of its items, and its final state is right, whoever ends them in which order."""

import asyncio
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from schema.connection import Connection as PlainConnection
from store import ingest_requests
from store.connection import Connection
from store.pool import Pool
from store.units import Unit
from tests.store import queue_factory as factory
from tests.store.queue_factory import Counts

FATES: dict[str, factory.Fate] = {
    "done": factory.done,
    "stale": factory.stale,
    "failed": factory.failed,
    "dead": factory.dead,
}


class StatementFailed(Exception):
    pass


@pytest.mark.parametrize(
    ("accepted", "processed", "failed", "status"),
    [
        (3, 0, 0, "processing"),
        (3, 2, 0, "processing"),
        (3, 0, 2, "processing"),
        (3, 3, 0, "completed"),
        (3, 2, 1, "partially_failed"),
        (3, 1, 2, "partially_failed"),
        (3, 0, 3, "failed"),
        (1, 1, 0, "completed"),
    ],
)
def test_the_state_follows_from_the_counts(accepted: int, processed: int, failed: int, status: str) -> None:
    assert ingest_requests.status_of(accepted, processed, failed) == status


async def split(pool: Pool, conn: PlainConnection, items: int) -> tuple[str, list[Unit], int]:
    """A request of which each item is a unit of its own, all of them held by one worker."""
    request_id = await factory.enqueue(pool, indexes=range(items), max_blob_bytes=1)
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    assert len(claimed) == items
    return request_id, claimed, worker_id


@pytest.mark.parametrize(
    ("fates", "status"),
    [
        (("done", "stale"), "completed"),
        (("failed", "dead"), "failed"),
        (("done", "dead"), "partially_failed"),
        (("failed", "stale"), "partially_failed"),
    ],
)
async def test_two_who_end_items_at_the_same_time_are_both_counted(
    pool: Pool, conn: PlainConnection, fates: tuple[str, str], status: str
) -> None:
    failed = sum(fate in ("failed", "dead") for fate in fates)
    for _ in range(6):
        request_id, claimed, worker_id = await split(pool, conn, 2)
        await asyncio.gather(
            *(factory.end(pool, [unit], worker_id, FATES[fate]) for unit, fate in zip(claimed, fates, strict=True))
        )
        counts = factory.counts(conn, request_id)
        assert (counts.status, counts.processed, counts.failed) == (status, 2 - failed, failed)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_the_order_in_which_items_end_makes_no_difference(
    pool: Pool, conn: PlainConnection, order: tuple[int, ...]
) -> None:
    request_id, claimed, worker_id = await split(pool, conn, 3)
    fates = (factory.done, factory.dead, factory.done)
    seen = []
    for place in order:
        await factory.end(pool, [claimed[place]], worker_id, fates[place])
        counts = factory.counts(conn, request_id)
        seen.append(counts.status)
        ended = factory.statuses(conn, request_id)
        assert (counts.processed, counts.failed) == (ended.count("completed"), ended.count("dead"))
    assert seen == ["processing", "processing", "partially_failed"]
    assert factory.counts(conn, request_id) == Counts("partially_failed", 2, 1, "It fails.")


async def test_who_comes_second_waits_for_the_first_and_counts_on_top(pool: Pool, conn: PlainConnection) -> None:
    request_id, claimed, worker_id = await split(pool, conn, 2)
    has_counted, may_commit = asyncio.Event(), asyncio.Event()

    async def pause(_: Connection) -> None:
        has_counted.set()
        await may_commit.wait()

    async with asyncio.timeout(20):
        first = asyncio.create_task(factory.end(pool, claimed[:1], worker_id, factory.done, then=pause))
        await has_counted.wait()
        second = asyncio.create_task(factory.end(pool, claimed[1:], worker_id, factory.failed))
        await until_somebody_waits(conn)
        assert not second.done()
        may_commit.set()
        await first
        await second
    assert factory.counts(conn, request_id) == Counts("partially_failed", 1, 1, "It is taken.")


async def until_somebody_waits(conn: PlainConnection) -> None:
    while conn.fetch_all("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")[0][1] == "0":
        await asyncio.sleep(0.01)


async def test_the_one_who_ends_last_finds_that_the_payload_is_needed_no_more(
    pool: Pool, conn: PlainConnection
) -> None:
    """Also if both end at once: one of them comes second, and sees what the other did."""
    for _ in range(8):
        await factory.enqueue(pool, indexes=range(2))
        worker_id = factory.join(conn)
        await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.again)
        claimed = await factory.claim(pool, worker_id)
        assert len({unit.blob_id for unit in claimed}) == 1
        await asyncio.gather(*(factory.end(pool, [unit], worker_id, factory.done) for unit in claimed))
    late = "SELECT COUNT(*) FROM wp_novel_ingest_payload_blobs WHERE expires_at > UTC_TIMESTAMP() + INTERVAL 2 HOUR"
    assert conn.fetch_all(late) == [(0,)]


async def test_several_requests_of_one_set_are_counted_each_for_itself(pool: Pool, conn: PlainConnection) -> None:
    requests = [await factory.enqueue(pool, indexes=range(count)) for count in (1, 2, 3)]
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    await factory.end(pool, claimed, worker_id, lambda job: (factory.failed if job.index else factory.done)(job))
    assert [factory.counts(conn, request_id) for request_id in requests] == [
        Counts("completed", 1, 0),
        Counts("partially_failed", 1, 1, "It is taken."),
        Counts("partially_failed", 1, 2, "It is taken."),
    ]


async def test_an_item_that_waits_keeps_its_request_open(pool: Pool, conn: PlainConnection) -> None:
    request_id = await factory.enqueue(pool, indexes=range(2))
    worker_id = factory.join(conn)
    claimed = await factory.claim(pool, worker_id)
    await factory.end(pool, claimed, worker_id, lambda job: (factory.again if job.index else factory.done)(job))
    assert factory.counts(conn, request_id) == Counts("processing", 1, 0)
    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.done)
    assert factory.counts(conn, request_id) == Counts("completed", 2, 0)


async def test_items_of_a_request_that_is_gone_end_nevertheless(pool: Pool, conn: PlainConnection) -> None:
    gone, there = [await factory.enqueue(pool) for _ in range(2)]
    conn.execute("DELETE FROM wp_novel_ingest_requests WHERE request_id = %s", (gone,))
    worker_id = factory.join(conn)
    await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.done)
    assert factory.statuses(conn, gone) == ["completed"] * 3
    assert factory.counts(conn, there) == Counts("completed", 3, 0)


class Fragile:
    """A connection whose statements fail after so many."""

    def __init__(self, conn: Connection, statements: int) -> None:
        self._conn = conn
        self._left = statements
        self.dialect = conn.dialect

    async def fetch_all(self, *arguments: Any) -> Any:
        self._use_up()
        return await self._conn.fetch_all(*arguments)

    async def execute(self, *arguments: Any) -> Any:
        self._use_up()
        return await self._conn.execute(*arguments)

    async def execute_many(self, *arguments: Any) -> Any:
        self._use_up()
        return await self._conn.execute_many(*arguments)

    def _use_up(self) -> None:
        if self._left == 0:
            raise StatementFailed
        self._left -= 1


async def test_whichever_statement_fails_nothing_is_counted_and_the_next_try_counts_all(
    pool: Pool, conn: PlainConnection
) -> None:
    fates: Sequence[factory.Fate] = (factory.done, factory.stale, factory.again, factory.failed, factory.dead)
    failures = 0
    while True:
        request_id = await factory.enqueue(pool, indexes=range(5))
        worker_id = factory.join(conn)
        claimed = await factory.claim(pool, worker_id)
        verdicts = [fates[job.index](job) for job in await factory.load(pool, claimed)]
        try:
            await factory.write(pool, claimed, worker_id, verdicts, through=partial(Fragile, statements=failures))
        except StatementFailed:
            failures += 1
            assert factory.counts(conn, request_id) == Counts("processing", 0, 0)
            assert factory.statuses(conn, request_id) == ["queued"] * 5
            assert factory.leased(conn, worker_id) == [factory.Queued(0, 4, 5, 0, 0)]
            await factory.write(pool, claimed, worker_id, verdicts)
        else:
            break
        assert factory.counts(conn, request_id) == Counts("processing", 2, 2, "It fails.")
        await factory.end(pool, await factory.claim(pool, worker_id), worker_id, factory.done)
        assert factory.counts(conn, request_id) == Counts("partially_failed", 3, 2, "It fails.")
    # The leases, two groups of completed, the others, what waits, and the counters: read and written.
    assert failures >= 7
