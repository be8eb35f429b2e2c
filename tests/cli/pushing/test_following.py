from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cli.pushing import following
from cli.pushing.client import Client
from cli.pushing.items import STORIES
from cli.pushing.report import Report
from cli.pushing.sender import Accepted
from tests.cli.pushing.fake_service import CREDENTIALS, FakeService, Trouble, error


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def report(said: list[str]) -> Report:
    return Report(said.append)


@pytest.fixture
async def client(service: FakeService, impatient: None) -> AsyncIterator[Client]:
    client = Client(service.url, CREDENTIALS, attempts=2, notice=lambda text: None)
    yield client
    await client.close()


def state(status: str, processed: int = 0, failed: int = 0) -> dict[str, Any]:
    return {"status": status, "processed_items": processed, "failed_items": failed}


async def follow(client: Client, report: Report, *counts: int, wait: float = 60.0, stall: float = 60.0) -> int:
    accepted = [Accepted(f"request-{number}", count) for number, count in enumerate(counts)]
    report.accept(STORIES, sum(counts))
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count

    await following.follow(
        client, accepted, report, wait_seconds=wait, step=step, stall_seconds=stall, round_seconds=0.01
    )
    return done


async def test_it_asks_until_all_is_done(client: Client, service: FakeService, report: Report, said: list[str]) -> None:
    service.states = [state("queued"), state("processing", 4), state("processing", 7), state("completed", 10)]
    assert await follow(client, report, 10) == 10
    assert (report.processed, report.failed, report.waiting) == (10, 0, 0)
    assert said == []
    assert len(service.attempts) == 4


async def test_many_requests_are_followed_in_turn(client: Client, service: FakeService, report: Report) -> None:
    service.states = [state("queued")] * 30 + [state("completed", 2)]
    await follow(client, report, *[2] * 20)
    assert (report.processed, report.waiting) == (40, 0)


async def test_items_that_failed_are_named(
    client: Client, service: FakeService, report: Report, said: list[str]
) -> None:
    service.states = [state("partially_failed", 2, 1)]
    service.failed_items = [
        {"index": 0, "external_id": "s1", "status": "completed", "error_code": None, "message": None},
        {"index": 1, "external_id": "s2", "status": "dead_letter", "error_code": "story_gone", "message": "No story."},
        {"index": 2, "external_id": "s3", "status": "stale", "error_code": None, "message": None},
    ]
    await follow(client, report, 3)
    assert (report.processed, report.failed) == (2, 1)
    assert said == ["s2: failed: story_gone: No story."]
    assert not report.went_well


async def test_a_request_that_failed_as_a_whole_counts_all_its_items(
    client: Client, service: FakeService, report: Report
) -> None:
    service.states = [state("failed")]
    await follow(client, report, 7)
    assert report.failed == 7


async def test_it_stops_early_when_nothing_moves(
    client: Client, service: FakeService, report: Report, said: list[str]
) -> None:
    service.states = [state("processing", 1)]
    await follow(client, report, 5, wait=3600, stall=0.2)
    assert said == ["nothing was processed for 0 s: does a worker run? What was accepted is safe in the queue."]
    assert report.went_well
    assert report.waiting == 4


async def test_it_waits_no_longer_than_it_was_told(
    client: Client, service: FakeService, report: Report, said: list[str]
) -> None:
    service.states = [state("queued")]
    await follow(client, report, 5, wait=0.2)
    assert said == ["waited 0 s; batches that are not processed yet: 1. What was accepted is safe in the queue."]
    assert report.went_well


async def test_a_server_that_does_not_answer_any_more_is_no_failure_of_what_was_accepted(
    client: Client, service: FakeService, report: Report, said: list[str]
) -> None:
    service.troubles = deque([Trouble(502)] * 10)
    await follow(client, report, 5, 6)
    assert said == [
        "batches whose state is unknown: 2, because the server answered with status 502."
        " What was accepted is safe in the queue."
    ]
    assert report.went_well


async def test_a_request_that_is_not_known_any_more_is_only_mentioned(
    client: Client, service: FakeService, report: Report, said: list[str]
) -> None:
    service.troubles = deque([Trouble(404, body=error("not_found", "No such request."))])
    service.states = [state("completed", 6)]
    await follow(client, report, 5, 6)
    assert said == ["warning: not_found: No such request. (request request-0)"]
    assert report.processed == 6
