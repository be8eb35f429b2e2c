"""Worker processes: they join, beat, leave, and are missed when they have been silent for too long."""

import pytest

from schema.connection import Connection as PlainConnection
from store import workers
from store.pool import Pool
from store.workers import Worker
from tests.store import queue_factory as factory


async def silent(pool: Pool, *, lease_seconds: float) -> list[int]:
    async with pool.reading() as reading:
        return await workers.silent(reading, lease_seconds=lease_seconds)


async def on_host(pool: Pool, host: str) -> list[Worker]:
    async with pool.reading() as reading:
        return await workers.on_host(reading, host)


def heartbeat(conn: PlainConnection, worker_id: int) -> object:
    return conn.fetch_all("SELECT heartbeat_at FROM wp_novel_workers WHERE id = %s", (worker_id,))


async def test_a_worker_is_found_on_its_host_as_it_joined(pool: Pool, conn: PlainConnection) -> None:
    here, there = factory.identity(host="here", pid=2**31), factory.identity(host="there")
    first = workers.join(conn, here, kind="stories")
    workers.join(conn, there, kind="stories")
    second = workers.join(conn, here, kind="chapters")
    assert await on_host(pool, "here") == [Worker(first, "stories", here), Worker(second, "chapters", here)]
    assert await on_host(pool, "HERE") == []
    assert await on_host(pool, "nowhere") == []


def test_no_two_workers_ever_have_the_same_id(conn: PlainConnection) -> None:
    """What a worker held that is gone must not look as if it were a new one's."""
    first = factory.join(conn)
    workers.leave(conn, first)
    assert factory.join(conn) > first


def test_a_worker_that_has_left_or_was_taken_for_dead_learns_it_at_its_next_beat(conn: PlainConnection) -> None:
    first, second = (factory.join(conn) for _ in range(2))
    assert workers.beat(conn, first)
    workers.leave(conn, first)
    assert not workers.beat(conn, first)
    workers.leave(conn, first)
    assert workers.beat(conn, second)


async def test_a_beat_ends_the_silence(pool: Pool, conn: PlainConnection) -> None:
    worker_id, other = (factory.join(conn) for _ in range(2))
    for one in (worker_id, other):
        factory.silence(conn, one)
    before = heartbeat(conn, other)
    assert await silent(pool, lease_seconds=120) == [worker_id, other]
    assert workers.beat(conn, worker_id)
    assert await silent(pool, lease_seconds=120) == [other]
    assert heartbeat(conn, other) == before


@pytest.mark.parametrize(("lease_seconds", "is_silent"), [(0.5, True), (3599, True), (86400, False)])
async def test_who_is_silent_depends_on_the_lease(
    pool: Pool, conn: PlainConnection, lease_seconds: float, is_silent: bool
) -> None:
    worker_id = factory.join(conn)
    factory.silence(conn, worker_id, seconds=3600)
    assert await silent(pool, lease_seconds=lease_seconds) == [worker_id] * is_silent


async def test_who_was_rescued_learns_it_at_its_next_beat_and_joins_under_a_new_id(
    pool: Pool, conn: PlainConnection
) -> None:
    await factory.enqueue(pool)
    worker_id = factory.join(conn)
    await factory.claim(pool, worker_id)
    assert await factory.rescue(pool, worker_id) is not None
    assert not workers.beat(conn, worker_id)
    assert factory.join(conn) != worker_id
