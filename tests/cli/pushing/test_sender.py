import json
from collections import deque
from collections.abc import AsyncIterator, Iterator

import pytest

from cli.pushing.batches import Batch
from cli.pushing.client import Client
from cli.pushing.items import STORIES, Item
from cli.pushing.report import Report
from cli.pushing.sender import Sender
from runtime.problems import Problem
from tests.cli.pushing.fake_service import CREDENTIALS, FakeService, Trouble, error


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
async def sender(service: FakeService, impatient: None, said: list[str]) -> AsyncIterator[Sender]:
    client = Client(service.url, CREDENTIALS, attempts=3, notice=lambda text: None)
    yield Sender(client, Report(said.append), concurrency=2)
    await client.close()


def batch(*numbers: int) -> Batch:
    items = [Item(STORIES, "a", f"crawl.jsonl:{n}", json.dumps({"n": n}).encode()) for n in numbers]
    return Batch(STORIES, "a", tuple(items))


async def send(sender: Sender, *made: Batch) -> int:
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count

    await sender.send(made, step)
    return done


async def test_batches_are_sent_and_counted(sender: Sender, service: FakeService) -> None:
    assert await send(sender, batch(1, 2), batch(3)) == 3
    assert sorted(item["n"] for item in service.items("stories")) == [1, 2, 3]
    assert sender.report.accepted == {"stories": 3}
    assert {(one.request_id, one.count) for one in sender.accepted} == {
        (taken.answer["request_id"], len(taken.items)) for taken in service.batches.values()
    }


async def test_rejected_items_are_named_by_their_place_also_when_all_of_a_batch_are(
    sender: Sender, service: FakeService, said: list[str]
) -> None:
    service.is_rejected = lambda item: item["n"] % 2 == 0
    await send(sender, batch(1, 2, 3), batch(4))
    assert (sender.report.accepted.total(), sender.report.rejected) == (2, 2)
    assert sorted(said) == [f"crawl.jsonl:{n}: invalid_slug: slug is wrong." for n in (2, 4)]


async def test_a_batch_that_is_too_large_for_the_server_is_halved_until_it_fits(
    sender: Sender, service: FakeService
) -> None:
    service.max_items = 2
    await send(sender, batch(*range(9)))
    assert sorted(item["n"] for item in service.items("stories")) == list(range(9))
    assert max(len(taken.items) for taken in service.batches.values()) == 2
    assert sender.report.went_well


async def test_an_item_that_is_too_large_alone_is_rejected(
    sender: Sender, service: FakeService, said: list[str]
) -> None:
    service.max_items = 0
    await send(sender, batch(1, 2))
    assert sender.report.rejected == 2
    assert sorted(said) == [f"crawl.jsonl:{n}: payload_too_large: It is so." for n in (1, 2)]


@pytest.mark.parametrize("status", [400, 409, 422])
async def test_a_batch_that_is_refused_as_a_whole_does_not_stop_the_others(
    sender: Sender, service: FakeService, said: list[str], status: int
) -> None:
    service.troubles = deque([Trouble(status, body=error("a_code", "Not so."))])
    sender.concurrency = 1
    await send(sender, batch(1, 2), batch(3))
    assert (sender.report.accepted.total(), sender.report.rejected) == (1, 2)
    (line,) = said
    assert line.startswith("crawl.jsonl:1 to crawl.jsonl:2 (2 items): a_code: Not so.")
    assert ("--again" in line) == (status == 409)


async def test_a_batch_that_the_server_chokes_on_does_not_stop_the_others(
    sender: Sender, service: FakeService, said: list[str]
) -> None:
    service.refuses = lambda item: item["n"] == 13
    sender.client.attempts = 8
    made = [batch(number) for number in range(40)]
    await send(sender, *made)
    assert (sender.report.accepted.total(), sender.report.failed) == (39, 1)
    assert said == ["crawl.jsonl:13: given up: internal_error: It is so."]


async def test_a_server_that_takes_nothing_stops_the_run(sender: Sender, service: FakeService) -> None:
    service.troubles = deque([Trouble(502)] * 100)
    made = (batch(number) for number in range(100))
    with pytest.raises(Problem, match="the server takes nothing: the server answered with status 502"):
        await sender.send(made, lambda count: None)
    assert len(service.attempts) <= 6
    assert sum(1 for _ in made) >= 97, "the others were not touched"


async def test_an_answer_of_another_kind_of_service_stops_the_run(sender: Sender, service: FakeService) -> None:
    service.troubles = deque([Trouble(200, body=b'{"hello": "world"}')] * 2)
    with pytest.raises(Problem, match="that no novel service gives"):
        await send(sender, batch(1))


async def test_warnings_are_said_once(sender: Sender, service: FakeService, said: list[str]) -> None:
    answer = {
        "request_id": "x",
        "accepted_count": 1,
        "rejected_count": 0,
        "errors": [],
        "warnings": [{"code": "unknown_field", "message": "Ignored: colour."}],
    }
    service.troubles = deque([Trouble(202, body=json.dumps(answer).encode())] * 2)
    await send(sender, batch(1), batch(2))
    assert said == ["warning: unknown_field: Ignored: colour."]
    assert sender.report.went_well


async def test_batches_are_made_only_when_there_is_a_hand_free(sender: Sender, service: FakeService) -> None:
    made = 0

    def counted() -> Iterator[Batch]:
        nonlocal made
        for number in range(20):
            made += 1
            assert made - len(service.posts()) <= 2
            yield batch(number)

    await sender.send(counted(), lambda count: None)
    assert len(service.items("stories")) == 20
