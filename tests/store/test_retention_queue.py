"""The queue's rows are deleted when they are due and nothing needs them any more; a replay is never cut off."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from runtime.settings import Settings
from schema import connection
from schema.connection import Connection as PlainConnection
from store import dead_letters, replays, retention, retention_queue, units
from store.connection import Connection
from store.dead_letters import Wanted
from store.pool import Pool
from store.retention import DAY_SECONDS, Piece, Purge
from tests.store.aged_queue import (
    COMPLETED,
    DEAD,
    FAILED,
    PARTIALLY_FAILED,
    PROCESSING,
    QUEUED,
    REQUEST_COMPLETED,
    REQUEST_FAILED,
    REQUEST_QUEUED,
    ids,
    many_blobs,
    many_jobs,
    many_requests,
    new_blob,
    new_job,
    new_request,
    unit_of,
)
from tests.store.conftest import MakePool
from tests.store.counted_stories import Reads
from tests.store.test_retention import lag_seconds, meanwhile, one_piece, sweep


def purge_of(settings: Settings, task: str, *, idempotency_hours: int = 72, **changed: int) -> Purge:
    kept = replace(settings.retention, **changed)
    (found,) = [
        purge for purge in retention_queue.purges(kept, idempotency_hours=idempotency_hours) if purge.task == task
    ]
    return found


def rows_of(pieces: Sequence[Piece]) -> int:
    return sum(piece.rows for piece in pieces)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(retention, "PIECE_ROWS", 3)
    monkeypatch.setattr(retention_queue, "PIECE_BLOBS", 3)
    return 3


# -- jobs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "days"), [(QUEUED, None), (COMPLETED, 7), (FAILED, 30), (DEAD, 30)])
async def test_a_job_is_kept_as_long_as_its_end_deserves_and_one_that_has_not_ended_for_ever(
    pool: Pool, conn: PlainConnection, test_settings: Settings, status: int, days: int | None
) -> None:
    hours = [days * 24 - 1, days * 24 + 1] if days else [24 * 5000]
    young, *old = [new_job(conn, status, hours=some) for some in hours]
    assert rows_of(await sweep(pool, purge_of(test_settings, "jobs"))) == len(old)
    assert ids(conn, "jobs") == [young]


async def test_jobs_go_in_small_pieces_of_one_kind_after_the_other(
    pool: Pool, conn: PlainConnection, test_settings: Settings, small_pieces: int
) -> None:
    for status in (COMPLETED, FAILED, DEAD):
        for _ in range(4):
            new_job(conn, status, hours=31 * 24)
    left, purge, place = 12, purge_of(test_settings, "jobs"), None
    for rows in (3, 1, 3, 1, 3, 1):
        piece = await one_piece(pool, purge, place)
        assert piece.rows == rows
        left -= rows
        assert len(ids(conn, "jobs")) == left
        place = piece.place
    assert place is None


async def test_a_piece_of_jobs_reads_no_more_than_it_deletes_however_many_stand_beside(
    pool: Pool, conn: PlainConnection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE_ROWS", 50)
    many_jobs(conn)
    for _ in range(60):
        new_job(conn, COMPLETED, hours=200)
    await assert_reads(pool, purge_of(test_settings, "jobs"), rows=[50, 10, 0, 0])


async def test_a_dead_letter_that_is_queued_while_it_is_purged_stays(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    blob_id = new_blob(conn, expires_in_hours=1)
    request_id = new_request(conn, REQUEST_FAILED, hours=1000)
    for index in range(3):
        new_job(conn, DEAD, hours=1000, request_id=request_id, blob_id=blob_id, index=index)
    purge = purge_of(test_settings, "jobs")
    # The first two kinds have nothing; the third is that of dead letters.
    dead = Purge("jobs", lambda inside, _: purge.piece(inside, "2"))
    piece = await pool.transaction(meanwhile(dead, lambda: replay_all(conn)))
    assert piece.rows == 0
    assert len(ids(conn, "jobs")) == 3
    assert rows_of(await sweep(pool, purge_of(test_settings, "payloads"))) == 0
    async with pool.reading() as reading:
        assert await units.due_sources(reading, "stories_bulk") == ["truyen-a"]


# -- requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "days"),
    [
        (REQUEST_QUEUED, None),
        (PROCESSING, None),
        (REQUEST_COMPLETED, 7),
        (PARTIALLY_FAILED, 30),
        (REQUEST_FAILED, 30),
    ],
)
async def test_a_request_without_jobs_is_kept_as_long_as_its_end_deserves(
    pool: Pool, conn: PlainConnection, test_settings: Settings, status: int, days: int | None
) -> None:
    hours = [days * 24 - 1, days * 24 + 1] if days else [24 * 5000]
    young, *old = [new_request(conn, status, hours=some) for some in hours]
    assert rows_of(await sweep(pool, purge_of(test_settings, "requests"))) == len(old)
    assert ids(conn, "requests", "request_id") == [young]


async def test_a_request_stays_as_long_as_its_idempotency_key_counts(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    young, old = new_request(conn, hours=71), new_request(conn, hours=73)
    purge = purge_of(test_settings, "requests", completed_days=1, failed_days=1)
    await sweep(pool, purge)
    assert ids(conn, "requests", "request_id") == [young]
    assert old != young


@pytest.mark.parametrize("status", [QUEUED, COMPLETED, FAILED, DEAD])
async def test_a_request_stays_as_long_as_it_has_a_job(
    pool: Pool, conn: PlainConnection, test_settings: Settings, status: int
) -> None:
    request_id = new_request(conn, PARTIALLY_FAILED, hours=5000)
    new_job(conn, status, request_id=request_id)
    purge = purge_of(test_settings, "requests")
    assert rows_of(await sweep(pool, purge)) == 0
    conn.execute("DELETE FROM wp_novel_ingest_jobs")
    assert rows_of(await sweep(pool, purge)) == 1


async def test_requests_with_jobs_do_not_stand_before_those_without(
    pool: Pool, conn: PlainConnection, test_settings: Settings, small_pieces: int
) -> None:
    """Also not when all of them ended in one second, or when it begins anew in between."""
    kept, free = [], []
    for number in range(16):
        request_id = new_request(conn, REQUEST_FAILED if number % 2 else REQUEST_COMPLETED, hours=1000)
        if number in (0, 1, 2, 3, 4, 5, 6, 7, 12):
            new_job(conn, FAILED, request_id=request_id)
            kept.append(request_id)
        else:
            free.append(request_id)
    conn.execute("UPDATE wp_novel_ingest_requests SET updated_at = '2020-01-01'")
    purge = purge_of(test_settings, "requests")
    await one_piece(pool, purge)
    pieces = await sweep(pool, purge)
    assert rows_of(pieces) == len(free)
    assert max(piece.rows for piece in pieces) <= small_pieces
    assert ids(conn, "requests", "request_id") == kept


async def test_a_request_whose_dead_letters_are_queued_while_it_is_purged_stays(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    new_request(conn, REQUEST_FAILED, hours=1000)

    def queue_again() -> None:
        conn.execute("UPDATE wp_novel_ingest_requests SET status = 1, updated_at = UTC_TIMESTAMP()")

    purge = purge_of(test_settings, "requests")
    failed = Purge("requests", lambda inside, _: purge.piece(inside, f"{REQUEST_FAILED}|1970-01-01 00:00:00|0"))
    assert (await pool.transaction(meanwhile(failed, queue_again))).rows == 0
    assert len(ids(conn, "requests")) == 1


async def test_a_piece_of_requests_reads_no_more_than_it_deletes_however_many_stand_beside(
    pool: Pool, conn: PlainConnection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE_ROWS", 50)
    many_requests(conn)
    for hours in range(60):
        new_request(conn, hours=200 + hours)
    request_id = new_request(conn, hours=300)
    for index in range(300):
        new_job(conn, COMPLETED, request_id=request_id, index=index)
    await assert_reads(pool, purge_of(test_settings, "requests"), rows=[49, 11, 0, 0])


# -- payloads -------------------------------------------------------------------------------------------


async def test_a_payload_whose_time_has_come_goes_when_all_its_jobs_are_completed_or_gone(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    completed, without_jobs, young = new_blob(conn), new_blob(conn), new_blob(conn, expires_in_hours=1)
    for index in range(5):
        new_job(conn, COMPLETED, blob_id=completed, index=index)
    assert rows_of(await sweep(pool, purge_of(test_settings, "payloads"))) == 2
    assert ids(conn, "payload_blobs") == [young]
    assert without_jobs != young


@pytest.mark.parametrize("table", ["ready", "leases", None])
@pytest.mark.parametrize("status", [QUEUED, FAILED, DEAD])
async def test_a_payload_stays_as_long_as_one_of_its_jobs_needs_it(
    pool: Pool, conn: PlainConnection, test_settings: Settings, status: int, table: str | None
) -> None:
    blob_id = new_blob(conn, expires_in_hours=-1000)
    for index in range(4):
        new_job(conn, COMPLETED, blob_id=blob_id, index=index)
    job_id = new_job(conn, status, blob_id=blob_id, index=4)
    if table:
        unit_of(conn, job_id, table)
    purge = purge_of(test_settings, "payloads")
    assert rows_of(await sweep(pool, purge)) == 0
    assert ids(conn, "payload_blobs") == [blob_id]
    conn.execute("UPDATE wp_novel_ingest_jobs SET status = 2")
    conn.execute("UPDATE wp_novel_ingest_payload_blobs SET expires_at = UTC_TIMESTAMP() - INTERVAL 1 SECOND")
    assert rows_of(await sweep(pool, purge)) == 1


async def test_payloads_that_are_needed_do_not_stand_before_those_that_are_not(
    pool: Pool, conn: PlainConnection, test_settings: Settings, small_pieces: int
) -> None:
    needed = [new_blob(conn, expires_in_hours=-1000) for _ in range(7)]
    for blob_id in needed:
        new_job(conn, DEAD, blob_id=blob_id)
    for _ in range(7):
        new_blob(conn)
    pieces = await sweep(pool, purge_of(test_settings, "payloads"))
    assert [piece.rows for piece in pieces] == [0, 0, 2, 3, 2]
    assert ids(conn, "payload_blobs") == needed
    assert await one_piece(pool, purge_of(test_settings, "payloads")) == Piece(0, None)  # and are not looked at again


async def test_a_replay_while_payloads_are_purged_keeps_its_own_for_its_whole_time(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    blob_id = new_blob(conn)
    new_job(conn, DEAD, blob_id=blob_id)
    purge = purge_of(test_settings, "payloads")
    assert (await pool.transaction(meanwhile(purge, lambda: replay_all(conn)))).rows == 0
    assert conn.fetch_all(
        "SELECT expires_at > UTC_TIMESTAMP() + INTERVAL 29 DAY FROM wp_novel_ingest_payload_blobs"
    ) == [(1,)]


async def test_a_payload_that_gets_more_time_while_it_is_purged_stays(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    new_blob(conn)

    def keep() -> None:
        conn.execute("UPDATE wp_novel_ingest_payload_blobs SET expires_at = UTC_TIMESTAMP() + INTERVAL 1 DAY")

    purge = purge_of(test_settings, "payloads")
    assert (await pool.transaction(meanwhile(purge, keep))).rows == 0


async def test_a_piece_of_payloads_reads_no_more_than_the_jobs_of_its_own(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    many_blobs(conn)
    many_jobs(conn)
    for _ in range(25):
        blob_id = new_blob(conn)
        for index in range(4):
            new_job(conn, COMPLETED, blob_id=blob_id, index=index)
    await assert_reads(pool, purge_of(test_settings, "payloads"), rows=[20, 5], beside=20 * 5)


# -- together -------------------------------------------------------------------------------------------


async def test_purges_in_their_order_leave_nothing_of_what_is_old(
    pool: Pool, conn: PlainConnection, test_settings: Settings
) -> None:
    for status, ended in ((REQUEST_COMPLETED, COMPLETED), (REQUEST_FAILED, DEAD), (PARTIALLY_FAILED, FAILED)):
        blob_id, request_id = new_blob(conn), new_request(conn, status, hours=1000)
        new_job(conn, ended, hours=1000, request_id=request_id, blob_id=blob_id)
        new_job(conn, COMPLETED, hours=1000, request_id=request_id, blob_id=blob_id, index=1)
    for purge in retention_queue.purges(test_settings.retention, idempotency_hours=72):
        await sweep(pool, purge)
    assert [ids(conn, table) for table in ("jobs", "requests", "payload_blobs")] == [[], [], []]


async def test_the_lag_is_that_of_the_oldest(pool: Pool, conn: PlainConnection, test_settings: Settings) -> None:
    new_job(conn, COMPLETED, hours=9 * 24)
    new_job(conn, DEAD, hours=31 * 24)
    new_request(conn, REQUEST_COMPLETED, hours=10 * 24)
    new_blob(conn, expires_in_hours=-4 * 24)
    for task, days in (("jobs", 2), ("requests", 3), ("payloads", 4)):
        purge = purge_of(test_settings, task)
        assert round(await lag_seconds(pool, purge) / DAY_SECONDS) == days
        await sweep(pool, purge)
        assert await lag_seconds(pool, purge) <= 0


async def test_purges_and_a_replay_at_once_leave_each_dead_letter_gone_or_whole(
    make_pool: MakePool, conn: PlainConnection, test_settings: Settings, small_pieces: int
) -> None:
    """Two of each purge and an operator's replay, over dead letters of which all are due."""
    for _ in range(20):
        blob_id, request_id = new_blob(conn), new_request(conn, REQUEST_FAILED, hours=1000)
        for index in range(5):
            new_job(conn, DEAD, hours=1000, request_id=request_id, blob_id=blob_id, index=index)

    async def purge(pool: Pool) -> None:
        for some in retention_queue.purges(test_settings.retention, idempotency_hours=72):
            await sweep(pool, some)

    def replay() -> None:
        with connection.connect(test_settings.database) as another:
            replay_all(another, at_once=7)

    await asyncio.gather(purge(make_pool(size=1)), purge(make_pool(size=1)), asyncio.to_thread(replay))
    left = conn.fetch_all(
        "SELECT j.status, b.id IS NOT NULL, r.id IS NOT NULL FROM wp_novel_ingest_jobs j"
        " LEFT JOIN wp_novel_ingest_payload_blobs b ON b.id = j.payload_blob_id AND b.expires_at > UTC_TIMESTAMP()"
        " LEFT JOIN wp_novel_ingest_requests r ON r.request_id = j.request_id"
    )
    assert set(left) <= {(QUEUED, 1, 1)}
    ((waiting,),) = conn.fetch_all("SELECT COALESCE(SUM(items), 0) FROM wp_novel_ingest_ready")
    assert waiting == len(left)


def replay_all(conn: PlainConnection, *, at_once: int = 100) -> None:
    wanted = Wanted(until=dead_letters.now(conn))
    found = dead_letters.find(conn, wanted)
    run = replays.begin(conn, wanted, found, operator="an operator")
    for start in range(0, len(found.job_ids), at_once):
        run = replays.queue(conn, run, found.job_ids[start : start + at_once], wait=lambda _: None)


async def assert_reads(pool: Pool, purge: Purge, *, rows: Sequence[int], beside: int = 0) -> None:
    """Pieces delete so many rows, and read hardly more: `beside` is what they may read in other tables."""

    async def work(inside: Connection) -> None:
        place = None
        for deleted in rows:
            async with Reads(inside) as reads:
                piece = await purge.piece(inside, place)
            place = piece.place
            assert piece.rows == deleted
            assert reads.entries <= 50 + 5 + beside
            assert reads.rows <= 2 * 50 + 5
        assert place is None
        assert purge.lag_seconds is not None
        async with Reads(inside) as reads:
            await purge.lag_seconds(inside)
        assert reads.entries + reads.rows <= 10

    await pool.transaction(work)
