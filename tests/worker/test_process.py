"""A worker process from within: why it ends, what it leaves behind, and what must not end it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from runtime.settings import Settings, load
from runtime.shutdown import Stop
from schema.connection import Connection
from store import errors, minutes, wakeups
from store.connection import Connection as PoolConnection
from store.jobs import Job
from tests.processes import wait_for
from tests.runtime.conftest import LogLines, log_lines, unconfigured_logs
from tests.worker.batches import DONE, add_stories, all_ended, chapter, count, ended, push, story, waiting
from tests.worker.looping import with_worker
from worker import loop, process
from worker.chapters import Chapters
from worker.handler import Applied
from worker.process import CHAPTERS, RECOUNTS, STORIES, Ended, Process, Task
from worker.recounts import Recounts
from worker.rescuing import Rescuer

__all__ = ["log_lines", "unconfigured_logs"]

DRAIN = Task(kind=CHAPTERS, limit=600, drain=True)
STAY = Task(kind=CHAPTERS, limit=600)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(process, "MEMORY_SECONDS", 0.01)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """Every process that was made."""
    processes: list[Process] = []
    real = Process.__init__

    def remember(self: Process, settings: Settings, task: Task) -> None:
        real(self, settings, task)
        processes.append(self)

    monkeypatch.setattr(Process, "__init__", remember)
    return processes


async def run(settings: Settings, task: Task = DRAIN, *, stop: Stop | None = None) -> Ended:
    return await asyncio.wait_for(process.run(settings, task, stop=stop or Stop()), 60)


async def run_until(settings: Settings, condition: Callable[[], object], task: Task = STAY) -> Ended:
    """Run it, and ask it to stop once the condition holds."""
    stop = Stop()
    running = asyncio.create_task(process.run(settings, task, stop=stop))
    watching = asyncio.create_task(asyncio.to_thread(wait_for, condition))
    await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
    stop.request("SIGTERM")
    ended = await asyncio.wait_for(running, 60)
    await watching
    return ended


def nobody_is_left(conn: Connection) -> bool:
    return count(conn, "workers") == count(conn, "ingest_leases") == 0


# -- why it ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loops", [1, 3])
async def test_draining_ends_once_all_is_done(conn: Connection, test_settings: Settings, loops: int) -> None:
    add_stories(conn)
    requests = [push(conn, [chapter(10 * n), chapter(10 * n + 1)]) for n in range(1, 8)]
    assert await run(test_settings, replace(DRAIN, loops=loops)) == Ended("drained")
    assert [ended(conn, request_id) for request_id in requests] == [[DONE, DONE]] * 7
    assert nobody_is_left(conn)


@pytest.mark.parametrize("kind", [STORIES, CHAPTERS, RECOUNTS])
async def test_every_kind_ends_when_asked_to(conn: Connection, test_settings: Settings, kind: str) -> None:
    task = replace(STAY, kind=kind, loops=2)
    ended = await run_until(test_settings, lambda: count(conn, "workers", f"kind = '{kind}'"), task)
    assert ended == Ended("SIGTERM")
    assert nobody_is_left(conn)


async def test_it_ends_after_its_time(conn: Connection, test_settings: Settings) -> None:
    assert await run(test_settings, replace(STAY, max_runtime_seconds=0.1)) == Ended("runtime")
    assert nobody_is_left(conn)


async def test_it_ends_between_sets_once_it_has_grown_too_large_and_wants_to_be_started_again(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch, made: list[Process]
) -> None:
    add_stories(conn)
    requests = [push(conn, [chapter(n)]) for n in (1, 2)]
    sizes = {"now": 1}
    monkeypatch.setattr(process, "resident_bytes", lambda: sizes["now"])
    monkeypatch.setattr(loop, "MAX_SET_ITEMS", 1)
    before, real, done = waiting(conn), Chapters.apply, asyncio.Event()

    async def grow(self: Chapters, conn: PoolConnection, jobs: Sequence[Job]) -> Applied:
        sizes["now"] = 101
        await done.wait()
        return await real(self, conn, jobs)

    async def stopping() -> None:
        while not any(some._stop.is_set() for some in made):
            await asyncio.sleep(0.01)
        done.set()

    monkeypatch.setattr(Chapters, "apply", grow)
    stopper = asyncio.create_task(stopping())
    over = await run(test_settings, replace(STAY, memory_limit_bytes=100))
    await stopper
    assert over == Ended("memory")
    assert over.wants_to_be_started_again
    assert ended(conn, requests[0]) == [DONE]
    assert waiting(conn) == before[1:]
    assert not Ended("runtime").wants_to_be_started_again


async def test_work_that_takes_too_long_at_a_stop_is_cut_off_and_goes_back_as_it_was(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    add_stories(conn)
    push(conn, [chapter(1)])
    before = waiting(conn)

    async def hang(self: Chapters, conn: PoolConnection, jobs: Sequence[Job]) -> Applied:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Chapters, "apply", hang)
    settings = with_worker(test_settings, stop_seconds=0.1)
    assert await run_until(settings, lambda: count(conn, "ingest_leases")) == Ended("SIGTERM")
    assert log_lines.one("worker.cut_off")["loops"] == 1
    assert waiting(conn) == before
    assert nobody_is_left(conn)


async def test_a_task_that_swallows_its_cancellation_does_not_hold_up_the_end(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As redis-py does when it is just connecting."""
    swallowed = []

    async def swallow(*args: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.append(1)
        await asyncio.Event().wait()

    monkeypatch.setattr(process, "CANCEL_SECONDS", 0.05)
    monkeypatch.setattr(wakeups, "listen", swallow)
    assert await run(test_settings, replace(STAY, max_runtime_seconds=0.1)) == Ended("runtime")
    assert swallowed
    assert nobody_is_left(conn)


async def test_a_stop_that_was_asked_for_before_it_began_is_heard(conn: Connection, test_settings: Settings) -> None:
    stop = Stop()
    stop.request("SIGINT")
    assert await run(test_settings, STAY, stop=stop) == Ended("SIGINT")


# -- what must not end it --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("odd"), errors.DatabaseUnavailable("away")])
async def test_looking_after_others_may_fail_without_ending_ones_own_work(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines, error: Exception
) -> None:
    async def fail(self: Rescuer) -> int:
        raise error

    monkeypatch.setattr(Rescuer, "look", fail)
    add_stories(conn)
    request_id = push(conn, [chapter(1)])
    looked = lambda: len(log_lines.of("worker.not_looked_after")) > 2 and all_ended(conn)  # noqa: E731
    assert await run_until(test_settings, looked) == Ended("SIGTERM")
    assert ended(conn, request_id) == [DONE]


async def test_what_a_loop_dies_of_is_raised_after_everything_was_given_back(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_stories(conn)
    push(conn, [chapter(1)])
    before = waiting(conn)

    async def fail(self: loop.QueueLoop, *args: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(loop.QueueLoop, "_work_off", fail)
    with pytest.raises(ZeroDivisionError):
        await run(test_settings)
    assert waiting(conn) == before
    assert nobody_is_left(conn)


# -- what it leaves behind -------------------------------------------------------------------------------


async def test_what_it_did_is_added_to_the_minute(conn: Connection, test_settings: Settings) -> None:
    push(conn, [story(1), story(2)])
    push(conn, [chapter(1), chapter(2, story=404)])
    await run(test_settings, replace(DRAIN, kind=STORIES))
    await run(test_settings)
    rows = conn.fetch_all(
        "SELECT job_type, SUM(completed), SUM(retried) FROM wp_novel_ingest_minutes GROUP BY job_type ORDER BY job_type"
    )
    assert rows == [("chapters_bulk", 1, 1), ("stories_bulk", 2, 0)]


async def test_what_could_not_be_added_to_a_minute_is_added_later(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TALLY_SECONDS", 0.02)
    real, failures = minutes.add, iter([errors.StatementTimeout("slow"), errors.ServerRefused(1, "no")])

    async def add(conn: PoolConnection, rows: Any) -> None:
        if failure := next(failures, None):
            raise failure
        await real(conn, rows)

    monkeypatch.setattr(minutes, "add", add)
    add_stories(conn)
    push(conn, [chapter(1)])
    await run_until(test_settings, lambda: count(conn, "ingest_minutes", "completed = 1"))
    assert conn.fetch_all("SELECT SUM(completed) FROM wp_novel_ingest_minutes") == [(1,)]


async def test_stories_that_a_worker_counts_are_free_after_it_even_when_it_was_taken_for_dead(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch, made: list[Process]
) -> None:
    add_stories(conn)
    conn.execute(
        "INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, updated_at)"
        " SELECT id, UTC_TIMESTAMP(), UTC_TIMESTAMP() - INTERVAL 1 SECOND, UTC_TIMESTAMP() FROM wp_novel_stories"
    )

    async def hang(self: Recounts, claimed: object) -> None:
        conn.execute("DELETE FROM wp_novel_workers")
        made[0]._membership.doubt()
        await asyncio.Event().wait()

    monkeypatch.setattr(Recounts, "_recount", hang)
    settings = with_worker(test_settings, stop_seconds=0.1)
    rejoined = lambda: made and made[0]._membership.worker_id not in (0, made[0]._counts_as)  # noqa: E731
    await run_until(settings, rejoined, replace(STAY, kind=RECOUNTS))
    assert count(conn, "story_recount_queue", "locked_at IS NULL") == 1
    assert nobody_is_left(conn)


async def test_redis_that_is_away_costs_nothing_but_time(conn: Connection, environ: dict[str, str]) -> None:
    add_stories(conn)
    request_id = push(conn, [chapter(1)])
    assert await run(load(environ | {"NOVEL_REDIS_URL": "redis://127.0.0.1:1"})) == Ended("drained")
    assert ended(conn, request_id) == [DONE]
