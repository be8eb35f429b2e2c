"""How a loop ends and waits: at a stop, when it drains, and when there is nothing to do."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from runtime.settings import Settings
from schema.connection import Connection
from store import errors
from store.connection import Connection as PoolConnection
from store.jobs import Job
from store.pool import Pool
from tests.worker.batches import DONE, Ended, add_stories, all_ended, chapter, count, ended, push, waiting
from tests.worker.looping import Transaction, Work, Wrapped, faults, make_loop, membership, running, until, with_worker
from worker import loop
from worker.loop import Shared
from worker.membership import Membership

__all__ = ["membership"]


async def test_at_a_stop_the_set_under_way_is_finished_and_the_rest_goes_back_as_it_was(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MAX_SET_ITEMS", 2)
    add_stories(conn)
    requests = [push(conn, [chapter(10 * n), chapter(10 * n + 1)]) for n in range(1, 4)]
    conn.execute("UPDATE wp_novel_ingest_ready SET attempts = 3, next_run_at = next_run_at - INTERVAL 7 SECOND")
    before = waiting(conn)
    stop, shared, handler = asyncio.Event(), Shared(), Wrapped()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold(conn: PoolConnection, jobs: Sequence[Job]) -> None:
        begun.set()
        await go_on.wait()

    handler.before = hold
    working = make_loop(pool, membership, test_settings, handler=handler, shared=shared, stop=stop)
    working._units_at_once = 3
    async with running(working, stop, shared):
        await begun.wait()
        assert waiting(conn) == []
        stop.set()
        go_on.set()
    assert handler.sizes == [2]
    done = [request_id for request_id in requests if ended(conn, request_id) == [Ended("completed", 4)] * 2]
    assert len(done) == 1
    assert waiting(conn) == [unit for unit in before if unit[2] != done[0]]
    assert count(conn, "ingest_leases") == 0


async def test_a_stop_that_comes_with_a_claim_gives_all_of_it_back(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_stories(conn)
    for n in range(1, 4):
        push(conn, [chapter(n)])
    before = waiting(conn)
    stop, handler = asyncio.Event(), Wrapped()

    async def stop_after(real: Transaction, work: Work) -> Any:
        result = await real(work)
        stop.set()
        return result

    with faults(monkeypatch, pool, stop_after):
        await make_loop(pool, membership, test_settings, handler=handler, stop=stop).run()
    assert handler.sizes == []
    assert waiting(conn) == before


async def test_draining_ends_once_nothing_is_due_and_leaves_what_waits(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1), chapter(2, story=404)])
    shared = Shared()
    loops = [make_loop(pool, membership, test_settings, shared=shared) for _ in range(3)]
    await asyncio.wait_for(asyncio.gather(*(some.run(drain=True) for some in loops)), 30)
    assert ended(conn, request_id) == [DONE, Ended("queued", 1)]


async def test_draining_includes_what_is_to_be_tried_again_at_once(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership
) -> None:
    request_id = push(conn, [chapter(1)])
    settings = with_worker(test_settings, retry_seconds=(0.0,))
    await asyncio.wait_for(make_loop(pool, membership, settings).run(drain=True), 30)
    assert ended(conn, request_id) == [Ended("dead", 5)]


async def test_draining_waits_out_a_database_that_is_away(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1), chapter(2)])
    monkeypatch.setattr("worker.resting.MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setattr("worker.resting.FIRST_WAIT_SECONDS", 0.01)
    away = iter([True, True, True, False, True, True, True, True, True])

    async def be_away(real: Transaction, work: Work) -> Any:
        if next(away, False):
            raise errors.DatabaseUnavailable("away") from OSError("refused")
        return await real(work)

    with faults(monkeypatch, pool, be_away), monkeypatch.context() as patch:
        patch.setattr(loop.QueueLoop, "_is_reachable", unreachable)
        await make_loop(pool, membership, test_settings).run(drain=True)
    assert ended(conn, request_id) == [DONE, DONE]


async def unreachable(self: object) -> bool:
    return False


async def test_an_idle_worker_hears_the_bell_long_before_its_pause_ends(
    pool: Pool, conn: Connection, test_settings: Settings, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several sets in flight look at an empty queue one at a time, and the bell wakes the one that does."""
    add_stories(conn)
    patient = with_worker(test_settings, poll_seconds=3600.0)
    shared, stop = Shared(), asyncio.Event()
    looks = 0

    async def counted(real: Transaction, work: Work) -> Any:
        nonlocal looks
        looks += 1
        return await real(work)

    with faults(monkeypatch, pool, counted):
        loops = [make_loop(pool, membership, patient, shared=shared, stop=stop) for _ in range(3)]
        async with running(loops[0], stop, shared), running(loops[1], stop, shared), running(loops[2], stop, shared):
            await until(lambda: shared.turn.locked() and looks == 1)
            request_id = push(conn, [chapter(1)])
            shared.wake.set()
            await until(lambda: all_ended(conn))
    assert ended(conn, request_id) == [DONE]
