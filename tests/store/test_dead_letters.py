"""Which dead letters an operator's filters find, in which order, and that finding them changes nothing."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from schema.connection import Connection
from store import dead_letters, payloads
from store.dead_letters import Found, Group, Lost, Wanted
from store.pool import Pool
from tests.store.queued import Batch, chapter, end, lose_payload, make_batch, make_dead, reads, story

HOUR = 3600


def find(conn: Connection, *, limit: int | None = None, **filters: Any) -> Found:
    wanted = Wanted(**{"until": dead_letters.now(conn)} | filters)
    return dead_letters.find(conn, wanted, limit=limit)


def ids(*batches: Batch) -> list[int]:
    return sorted(job_id for batch in batches for job_id in batch.job_ids)


async def test_without_filters_every_dead_letter_is_found_and_nothing_else(pool: Pool, conn: Connection) -> None:
    dead = await make_dead(pool, conn, [chapter(1), chapter(2)])
    await make_batch(pool, [chapter(3)])
    failed, completed = await make_batch(pool, [chapter(4)]), await make_batch(pool, [chapter(5)])
    end(conn, failed, dead=(), failed=(0,))
    end(conn, completed, dead=())
    found = find(conn)
    assert list(found.job_ids) == ids(dead)
    assert found.groups == {Group(payloads.CHAPTERS, "truyen-a", "dead_letter", "apply_failed"): 2}
    assert not found.lost_groups
    assert not found.lost


async def test_each_filter_finds_only_what_matches_it(pool: Pool, conn: Connection) -> None:
    old = await make_dead(pool, conn, ago_seconds=2 * HOUR)
    other_source = await make_dead(pool, conn, source="Truyen-A")
    stories = await make_dead(pool, conn, [story()])
    other_code = await make_dead(pool, conn, code="story_not_found")
    nameless = await make_dead(pool, conn, code=None)
    everything = [old, other_source, stories, other_code, nameless]
    since = dead_letters.now(conn) - timedelta(hours=1)
    assert list(find(conn).job_ids) == ids(*everything)
    assert list(find(conn, since=since).job_ids) == ids(*everything[1:])
    assert list(find(conn, source="Truyen-A").job_ids) == ids(other_source)
    assert list(find(conn, job_type=payloads.STORIES).job_ids) == ids(stories)
    assert list(find(conn, error_code="story_not_found").job_ids) == ids(other_code)
    assert list(find(conn, request_id=nameless.request_id).job_ids) == ids(nameless)
    assert list(find(conn, source="truyen-a", job_type=payloads.CHAPTERS, since=since).job_ids) == (
        ids(other_code, nameless)
    )
    assert not find(conn, request_id=nameless.request_id, source="Truyen-A").job_ids
    assert not find(conn, request_id=old.request_id, since=since).job_ids


async def test_with_an_error_code_those_that_failed_at_once_are_found_too(pool: Pool, conn: Connection) -> None:
    batch = await make_batch(pool, [story(number) for number in range(3)])
    end(conn, batch, dead=(0,), failed=(1,), code="slug_conflict")
    assert list(find(conn).job_ids) == [batch.job_ids[0]]
    found = find(conn, error_code="slug_conflict")
    assert list(found.job_ids) == list(batch.job_ids[:2])
    assert {group.status: count for group, count in found.groups.items()} == {"dead_letter": 1, "failed": 1}
    assert list(find(conn, error_code="slug_conflict", request_id=batch.request_id).job_ids) == list(batch.job_ids[:2])


async def test_the_moment_of_since_belongs_to_it(pool: Pool, conn: Connection) -> None:
    batch = await make_dead(pool, conn, ago_seconds=HOUR)
    [(died_at,)] = conn.fetch_all("SELECT next_run_at FROM wp_novel_ingest_jobs")
    second = timedelta(seconds=1)
    of_request: dict[str, Any] = {"request_id": batch.request_id}
    for filters in ({}, of_request):
        assert find(conn, since=died_at, **filters).job_ids
        assert not find(conn, since=died_at + second, **filters).job_ids
        assert find(conn, until=died_at, **filters).job_ids
        assert not find(conn, until=died_at - second, **filters).job_ids


async def test_a_limit_takes_those_that_died_first_dead_letters_foremost(pool: Pool, conn: Connection) -> None:
    newest = await make_dead(pool, conn, code="c")
    oldest = await make_dead(pool, conn, code="c", ago_seconds=3 * HOUR)
    middle = await make_dead(pool, conn, code="c", ago_seconds=2 * HOUR)
    failed = await make_batch(pool, [chapter()])
    end(conn, failed, dead=(), failed=(0,), code="c", ago_seconds=9 * HOUR)
    assert list(find(conn, limit=1).job_ids) == ids(oldest)
    assert list(find(conn, limit=2).job_ids) == ids(oldest, middle)
    assert list(find(conn, limit=3, error_code="c").job_ids) == ids(oldest, middle, newest)
    assert list(find(conn, limit=4, error_code="c").job_ids) == ids(oldest, middle, newest, failed)


async def test_what_has_lost_its_payload_is_named_and_takes_no_place_of_the_limit(pool: Pool, conn: Connection) -> None:
    gone = await make_dead(pool, conn, [chapter(1), chapter(2)], ago_seconds=HOUR)
    lose_payload(conn, gone)
    there = await make_dead(pool, conn)
    found = find(conn, limit=1)
    assert list(found.job_ids) == ids(there)
    assert found.lost == [Lost(payloads.CHAPTERS, "truyen-a", gone.request_id, f"ref-{place}") for place in (0, 1)]
    assert found.lost_groups.total() == 2


async def test_a_job_that_never_had_a_blob_has_lost_its_payload(pool: Pool, conn: Connection) -> None:
    await make_dead(pool, conn)
    conn.execute("UPDATE wp_novel_ingest_jobs SET payload_blob_id = NULL")
    found = find(conn)
    assert (len(found.job_ids), found.lost_groups.total()) == (0, 1)


async def test_only_so_many_of_the_lost_are_named_and_all_are_counted(
    pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_LOST_SHOWN", 2)
    lose_payload(conn, await make_dead(pool, conn, [chapter(number) for number in range(5)]))
    found = find(conn)
    assert (len(found.lost), found.lost_groups.total()) == (2, 5)


@pytest.mark.parametrize("page_rows", [1, 2, 3, 100])
async def test_pages_leave_nothing_out_and_bring_nothing_twice(
    pool: Pool, conn: Connection, monkeypatch: pytest.MonkeyPatch, page_rows: int
) -> None:
    """Also where many died in one second, and others before and after it."""
    monkeypatch.setattr(dead_letters, "_PAGE_ROWS", page_rows)
    frames = [chapter(number) for number in range(5)]
    batches = [await make_dead(pool, conn, frames, ago_seconds=ago) for ago in (0, 60, 60, 61)]
    found = find(conn)
    assert list(found.job_ids) == ids(*batches)
    [(first, last)] = conn.fetch_all("SELECT MIN(next_run_at), MAX(next_run_at) FROM wp_novel_ingest_jobs")
    assert isinstance(first, datetime)
    assert list(find(conn, since=first, until=last).job_ids) == ids(*batches)
    assert list(find(conn, since=first + timedelta(seconds=1)).job_ids) == ids(*batches[:3])


async def test_finding_costs_what_is_dead_and_not_what_is_done(pool: Pool, conn: Connection) -> None:
    await make_dead(pool, conn, [chapter(number) for number in range(5)])

    until = datetime(2100, 1, 1)
    alone = reads(conn, lambda: find(conn, until=until))
    completed = await make_batch(pool, [chapter(number) for number in range(300)])
    end(conn, completed, dead=())
    assert 0 < alone == reads(conn, lambda: find(conn, until=until))
