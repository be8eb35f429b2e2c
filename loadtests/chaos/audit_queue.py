"""Compares requests and jobs with what was pushed: nothing lost, nothing doubled, every counter exact."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtests.chaos.feed import Batch
from loadtests.chaos.model import SLUG_CONFLICT, Catalogue
from schema.connection import Connection

COMPLETED, PARTIALLY_FAILED, FAILED = 2, 3, 4
JOB_COMPLETED, JOB_FAILED = 2, 3

_REQUESTS = """
    SELECT request_id, source, total_items, accepted_items, rejected_items, processed_items, failed_items, status
    FROM wp_novel_ingest_requests
"""
_JOBS = "SELECT request_id, item_index, status, error_code, is_stale FROM wp_novel_ingest_jobs"
_LEFT = """
    SELECT (SELECT COUNT(*) FROM wp_novel_ingest_ready), (SELECT COUNT(*) FROM wp_novel_ingest_leases),
        (SELECT COUNT(*) FROM wp_novel_story_recount_queue), (SELECT COUNT(*) FROM wp_novel_workers)
"""


def differences(
    conn: Connection, batches: Sequence[Batch], requests: Mapping[int, str], expected: Catalogue
) -> Iterator[str]:
    """What is wrong, a sentence each. `requests` has the id of each batch's request."""
    yield from _left(conn)
    rows = {row[0]: row[1:] for row in conn.fetch_all(_REQUESTS)}
    jobs: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for request_id, *job in conn.fetch_all(_JOBS):
        jobs[request_id].append(tuple(job))
    item = 0
    for place, batch in enumerate(batches):
        items = range(item, item + len(batch.accepted))
        item = items.stop
        request_id = requests.get(place, "")
        name = f"batch {place} (request {request_id})"
        failed = sum(number in expected.refused for number in items)
        wanted = _request(batch, failed)
        found = rows.pop(request_id, None)
        if found != wanted:
            yield f"{name}: source, counters and state are {found}, not {wanted}"
        yield from _jobs(name, batch, items, jobs.pop(request_id, []), expected)
    if rows:
        yield f"{len(rows)} requests that nobody made: {sorted(rows)[:3]}"
    if jobs:
        yield f"jobs of {len(jobs)} requests that nobody made: {sorted(jobs)[:3]}"


def _request(batch: Batch, failed: int) -> tuple[str, int, int, int, int, int, int]:
    accepted = len(batch.accepted)
    state = PARTIALLY_FAILED if failed else COMPLETED
    if failed == accepted:
        state = FAILED
    return batch.source, len(batch.items), accepted, len(batch.rejected), accepted - failed, failed, state


def _jobs(
    name: str, batch: Batch, items: range, found: Sequence[tuple[Any, ...]], expected: Catalogue
) -> Iterator[str]:
    """Each accepted item has one job, and it ended as it must."""
    if sorted(job[0] for job in found) != batch.accepted:
        yield f"{name}: its jobs are of the items {sorted(job[0] for job in found)}, not {batch.accepted}"
        return
    numbers = dict(zip(batch.accepted, items, strict=True))
    for index, status, code, is_stale in found:
        number = numbers[index]
        wanted = (JOB_FAILED, SLUG_CONFLICT) if number in expected.refused else (JOB_COMPLETED, None)
        if (status, code) != wanted:
            yield f"{name}: item {index} ended with {(status, code)}, not {wanted}"
        if is_stale and number in expected.newest:
            yield f"{name}: item {index} is said to be stale, but nothing is newer"


def _left(conn: Connection) -> Iterator[str]:
    row = conn.fetch_one(_LEFT)
    assert row is not None
    for count, what in zip(row, ("units", "leases", "recounts", "workers"), strict=True):
        if count:
            yield f"{count} {what} are left"
