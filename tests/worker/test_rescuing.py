"""Dead workers are found and what they held comes back: at once where it can be seen, else after the lease."""

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runtime.settings import Settings
from schema.connection import Connection as PlainConnection
from store import errors, rescues, workers
from store.pool import Pool
from store.workers import Identity
from tests.store.counting import counted
from worker import identity
from worker.rescuing import Rescuer

LEASE_SECONDS = 120
HERE = replace(identity.mine(), host="here/0123")
_NEW_JOB = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_blob_id, payload_hash,
         payload_size_bytes, item_index, next_run_at, created_at, updated_at)
    VALUES ('stories_bulk', 'a', 'r', '', UUID(), %s, '', 10, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP())
"""
_NEW_LEASE = """
    INSERT INTO wp_novel_ingest_leases
        (id, worker_id, job_type, source, request_id, payload_blob_id, first_item, last_item, items, next_run_at,
         created_at, claimed_at)
    VALUES (%s, %s, 'stories_bulk', 'a', 'r', %s, 0, 2, 3, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
"""
_CLAIM_STORY = """
    INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, locked_at, locked_by, updated_at)
    VALUES (%s, UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP(), %s, UTC_TIMESTAMP())
"""

Rescue = Callable[..., Rescuer]


@pytest.fixture
def rescuer(pool: Pool, test_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Rescue:
    monkeypatch.setattr(identity, "mine", lambda: HERE)

    def make(*, is_steady: bool = True) -> Rescuer:
        return Rescuer(pool, settings=test_settings, is_steady=lambda: is_steady)

    assert test_settings.worker.lease_seconds == LEASE_SECONDS
    return make


def living() -> Identity:
    """A process of this machine that is certainly there: this one."""
    return HERE


def dead() -> Identity:
    """A process of this machine that was there."""
    process = subprocess.Popen(["sleep", "60"])
    start = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    process.kill()
    process.wait()
    return replace(living(), pid=process.pid, process_start=start)


def elsewhere() -> Identity:
    return replace(living(), host="another/machine", pid=1, process_start=1)


def add_worker(conn: PlainConnection, who: Identity, *, silent_seconds: int = 0, units: int = 1) -> int:
    """A worker that holds units of three items each."""
    worker_id = workers.join(conn, who, kind="stories")
    conn.execute(
        "UPDATE wp_novel_workers SET heartbeat_at = heartbeat_at - INTERVAL %s SECOND WHERE id = %s",
        (silent_seconds, worker_id),
    )
    add_leases(conn, worker_id, units)
    return worker_id


def add_leases(conn: PlainConnection, worker_id: int, units: int = 1) -> None:
    for number in range(units):
        unit_id = worker_id * 100 + number
        conn.execute(_NEW_LEASE, (unit_id, worker_id, unit_id))
        for index in range(3):
            conn.execute(_NEW_JOB, (unit_id, index))


def held(conn: PlainConnection) -> list[int]:
    """Who holds a unit."""
    return [row[0] for row in conn.fetch_all("SELECT worker_id FROM wp_novel_ingest_leases ORDER BY id")]


def known(conn: PlainConnection) -> list[int]:
    return [row[0] for row in conn.fetch_all("SELECT id FROM wp_novel_workers ORDER BY id")]


def queued(conn: PlainConnection) -> list[tuple[int, int, int, int]]:
    """What is due: its blob, its items, failures and crashes."""
    return [
        tuple(row)
        for row in conn.fetch_all(
            "SELECT payload_blob_id, items, attempts, crashes FROM wp_novel_ingest_ready"
            " WHERE next_run_at <= UTC_TIMESTAMP(6) ORDER BY payload_blob_id"
        )
    ]


@pytest.mark.parametrize("is_steady", [False, True])
async def test_a_process_of_this_machine_that_is_gone_is_rescued_at_once(
    rescuer: Rescue, conn: PlainConnection, is_steady: bool
) -> None:
    """Also just after the database was away: that it is gone can be seen."""
    worker_id = add_worker(conn, dead(), units=2)
    before = counted("novel_queue_rescued_units_total", reason="gone")
    assert await rescuer(is_steady=is_steady).look() == 2
    assert (known(conn), held(conn)) == ([], [])
    assert queued(conn) == [(worker_id * 100, 3, 0, 1), (worker_id * 100 + 1, 3, 0, 1)]
    assert counted("novel_queue_rescued_units_total", reason="gone") == before + 2


async def test_a_later_process_with_the_same_number_is_not_the_one_that_is_gone(
    rescuer: Rescue, conn: PlainConnection
) -> None:
    add_worker(conn, replace(living(), process_start=living().process_start - 1))
    assert await rescuer().look() == 1


async def test_what_ran_before_the_machine_was_started_anew_is_gone(rescuer: Rescue, conn: PlainConnection) -> None:
    add_worker(conn, replace(living(), boot_id="11111111-2222-3333-4444-555555555555"))
    assert await rescuer().look() == 1


@pytest.mark.parametrize("who", [living, elsewhere])
async def test_a_worker_that_may_live_is_rescued_only_once_it_was_silent_for_the_lease(
    rescuer: Rescue, conn: PlainConnection, who: Callable[[], Identity]
) -> None:
    young = add_worker(conn, who(), silent_seconds=LEASE_SECONDS - 60)
    old = add_worker(conn, who(), silent_seconds=LEASE_SECONDS + 1)
    assert await rescuer().look() == 1
    assert (known(conn), held(conn)) == ([young], [young])
    assert queued(conn) == [(old * 100, 3, 0, 1)]


async def test_nobody_is_taken_for_dead_because_the_database_was_away(rescuer: Rescue, conn: PlainConnection) -> None:
    workers_ids = [add_worker(conn, who, silent_seconds=10_000) for who in (living(), elsewhere())]
    assert await rescuer(is_steady=False).look() == 0
    assert known(conn) == held(conn) == workers_ids
    workers.beat(conn, workers_ids[0])
    assert await rescuer(is_steady=True).look() == 1
    assert known(conn) == held(conn) == workers_ids[:1]


async def test_another_machines_process_is_not_judged_by_its_number_here(
    rescuer: Rescue, conn: PlainConnection
) -> None:
    gone_here = dead()
    for who in (
        replace(gone_here, host="another/machine"),
        replace(gone_here, pid_namespace=gone_here.pid_namespace + 1),
        replace(gone_here, boot_id="00000000-0000-0000-0000-000000000000"),
    ):
        add_worker(conn, who)
    assert await rescuer().look() == 0
    assert len(held(conn)) == 3


async def test_a_worker_that_beats_at_the_last_moment_keeps_what_it_holds(
    rescuer: Rescue, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_id = add_worker(conn, elsewhere(), silent_seconds=LEASE_SECONDS + 1)
    real = workers.silent

    async def silent(*arguments: object, **options: float) -> list[int]:
        found = await real(*arguments, **options)  # type: ignore[arg-type]
        workers.beat(conn, worker_id)
        return found

    monkeypatch.setattr(workers, "silent", silent)
    assert await rescuer().look() == 0
    assert known(conn) == held(conn) == [worker_id]


async def test_what_nobody_holds_any_more_comes_back(rescuer: Rescue, conn: PlainConnection) -> None:
    add_leases(conn, 4711, units=2)
    assert await rescuer(is_steady=False).look() == 2
    assert held(conn) == []
    assert [row[1:] for row in queued(conn)] == [(3, 0, 1), (3, 0, 1)]


async def test_a_worker_without_anything_just_goes(rescuer: Rescue, conn: PlainConnection) -> None:
    add_worker(conn, dead(), units=0)
    assert await rescuer().look() == 0
    assert known(conn) == []


async def test_recounts_of_a_dead_worker_come_back_too(rescuer: Rescue, conn: PlainConnection) -> None:
    worker_id = add_worker(conn, dead(), units=0)
    conn.execute(_CLAIM_STORY, (1, str(worker_id)))
    conn.execute(_CLAIM_STORY, (2, str(worker_id + 1)))
    await rescuer().look()
    rows = conn.fetch_all("SELECT story_id, locked_by FROM wp_novel_story_recount_queue ORDER BY story_id")
    assert list(rows) == [(1, None), (2, str(worker_id + 1))]


async def test_many_who_look_at_once_bring_each_unit_back_once(rescuer: Rescue, conn: PlainConnection) -> None:
    for who in (dead(), elsewhere()):
        add_worker(conn, who, silent_seconds=10_000, units=5)
    add_leases(conn, 4711, units=5)
    with capture_logs() as logs:
        rescued = await asyncio.gather(*(rescuer().look() for _ in range(4)))
    assert sum(rescued) == 15
    assert [log["units"] for log in logs if log["event"] == "worker.rescued"] == [5, 5, 5]
    assert [row[1:] for row in queued(conn)] == [(3, 0, 1)] * 15
    assert held(conn) == []


async def test_what_cannot_be_rescued_now_does_not_keep_others_from_it(
    rescuer: Rescue, conn: PlainConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may still wait for the last statement of one that was stopped in the middle of a transaction."""
    stuck, gone = (add_worker(conn, dead()) for _ in range(2))
    silent = add_worker(conn, elsewhere(), silent_seconds=10_000)
    add_leases(conn, 4711)
    real = rescues.bring_back

    async def bring_back(*arguments: object, **options: object) -> rescues.Rescued:
        if stuck in arguments:
            raise errors.DatabaseUnavailable("gave up after 6 attempts: lock wait timeout")
        return await real(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(rescues, "bring_back", bring_back)
        with capture_logs() as logs:
            assert await rescuer().look() == 3
    assert [log["worker_id"] for log in logs if log["event"] == "worker.not_rescued"] == [stuck]
    assert known(conn) == held(conn) == [stuck]
    assert gone != silent
    assert await rescuer().look() == 1
    assert held(conn) == []


async def test_a_rescue_that_found_nothing_is_not_told(rescuer: Rescue, conn: PlainConnection) -> None:
    add_worker(conn, living())
    with capture_logs() as logs:
        assert await rescuer().look() == 0
    assert [log["event"] for log in logs if log["event"].startswith("worker.")] == []
