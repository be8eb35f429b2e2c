from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import zstandard

from cli.pushing.client import Answer, Client, Credentials, GaveUp
from runtime import ports
from runtime.problems import Problem
from tests.cli.pushing.fake_service import CREDENTIALS, INGEST, FakeService, Trouble, error

PATH = f"{INGEST}stories/bulk"


@pytest.fixture
def body() -> bytes:
    return zstandard.ZstdCompressor().compress(b'{"source":"a","items":[{}]}')


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
async def client(service: FakeService, impatient: None, notices: list[str]) -> AsyncIterator[Client]:
    client = Client(service.url, CREDENTIALS, attempts=4, notice=notices.append)
    yield client
    await client.close()


async def post(client: Client, body: bytes, *, key: str = "key-1") -> Answer:
    request_id = "2f24b68a-b6d5-41d3-a4e8-33c8b679ab67"
    return await client.post(PATH, body, key=key, request_id=request_id, encoding="zstd")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again_signed_anew_with_the_same_identity(
    client: Client, service: FakeService, body: bytes, status: int
) -> None:
    service.troubles = deque([Trouble(status), Trouble(status, body=error("unavailable"))])
    answer = await post(client, body)
    assert answer.status == 202
    assert len(service.attempts) == 3
    for name in ("idempotency-key", "x-novel-request-id", "x-novel-key-id", "content-encoding"):
        assert len({attempt.headers[name] for attempt in service.attempts}) == 1
    assert len({attempt.body for attempt in service.attempts}) == 1
    assert len({attempt.headers["x-novel-nonce"] for attempt in service.attempts}) == 3
    assert len({attempt.headers["x-novel-signature"] for attempt in service.attempts}) == 3


@pytest.mark.parametrize("status", [400, 409, 413, 422])
async def test_what_no_retry_would_change_is_answered_at_once(
    client: Client, service: FakeService, body: bytes, status: int
) -> None:
    service.troubles = deque([Trouble(status, body=error("a_code", "A message."))])
    answer = await post(client, body)
    assert (answer.status, answer.code, answer.message) == (status, "a_code", "A message.")
    assert len(service.attempts) == 1


async def test_a_batch_whose_answer_was_lost_is_taken_once(client: Client, service: FakeService, body: bytes) -> None:
    service.troubles = deque([Trouble(loses_answer=True), Trouble(drops=True)])
    answer = await post(client, body)
    assert answer.status == 202
    assert len(service.attempts) == 3
    assert len(service.batches) == 1
    assert answer.data["request_id"] == service.batches["key-1"].answer["request_id"]


async def test_attempts_come_to_an_end(client: Client, service: FakeService, body: bytes, notices: list[str]) -> None:
    service.troubles = deque([Trouble(503, body=error("queue_full", "The queue is full."))] * 10)
    with pytest.raises(GaveUp, match=r"^queue_full: The queue is full$"):
        await post(client, body)
    assert len(service.attempts) == 4
    (first,) = notices  # the others would come too soon after it
    assert first.startswith("queue_full: The queue is full; trying again in 0 s (1 of 4 failed)")


async def test_a_server_that_sets_the_pace_is_patiently_followed_while_batches_get_through(
    client: Client, service: FakeService, body: bytes
) -> None:
    def another_batch_gets_through_now_and_then() -> None:
        client.batches_taken = len(service.attempts) // 3

    service.on_attempt = another_batch_gets_through_now_and_then
    service.troubles = deque([Trouble(429, {"Retry-After": "0"}, error("rate_limited"))] * 20)
    assert (await post(client, body)).status == 202
    assert len(service.attempts) == 21


async def test_a_very_long_pause_is_left_to_the_person(client: Client, service: FakeService, body: bytes) -> None:
    service.troubles = deque([Trouble(429, {"Retry-After": "86400"}, error("rate_limited", "Too much."))])
    with pytest.raises(GaveUp, match="rate_limited: Too much; come back in 86400 s"):
        await post(client, body)
    assert len(service.attempts) == 1


async def test_questions_are_signed_without_their_query_and_without_a_body(
    client: Client, service: FakeService
) -> None:
    answer = await client.get(f"{INGEST}requests/x/items", limit=200, cursor="abc")
    assert answer.data["items"] == []
    (attempt,) = service.attempts
    assert attempt.body == b""
    assert "idempotency-key" not in attempt.headers


async def test_a_service_that_is_not_there_is_named(body: bytes, impatient: None) -> None:
    url = f"http://127.0.0.1:{ports.find()}"
    client = Client(url, CREDENTIALS, attempts=2, notice=lambda text: None)
    with pytest.raises(GaveUp, match=rf"^{url} cannot be reached \(.+\)$"):
        await post(client, body)
    await client.close()


async def test_a_wrong_secret_is_one_clear_sentence(service: FakeService, body: bytes) -> None:
    client = Client(service.url, Credentials("nk_test.1", "wrong"), attempts=4, notice=lambda text: None)
    with pytest.raises(Problem, match=r"refused key nk_test\.1: .* Check NOVEL_PUSH_KEY_ID and the secret"):
        await post(client, body)
    await client.close()
    assert len(service.attempts) == 1


@pytest.mark.parametrize(("minutes", "side"), [(-7, "ahead of"), (9, "behind")])
async def test_clocks_that_differ_are_told_by_how_much(
    client: Client, service: FakeService, body: bytes, minutes: int, side: str
) -> None:
    theirs = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)
    service.troubles = deque([Trouble(401, {"Date": theirs}, error("timestamp_skew"))])
    with pytest.raises(Problem, match=rf"^this machine's clock is \d+ seconds {side} the server's") as caught:
        await post(client, body)
    (seconds,) = [int(word) for word in str(caught.value).split() if word.isdigit()]
    assert abs(seconds - abs(minutes) * 60) <= 30


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Trouble(301, {"Location": "https://novels.example/"}), "redirects to https://novels.example/: use that"),
        (Trouble(404, body=b"<html>"), "Is --url right?"),
        (Trouble(405, body=b"<html>"), "Is --url right?"),
        (Trouble(200, body=b"<html>hello"), "Is --url right?"),
        (Trouble(403, body=error("permission_denied", "This key may not.")), "This key may not. (permission_denied)"),
        (Trouble(403, body=error("https_required", "Only HTTPS.")), "Only HTTPS. (https_required)"),
        (Trouble(403, body=b"a proxy's page"), "the server answered with status 403"),
    ],
)
async def test_what_stands_in_the_way_of_every_batch_is_one_sentence(
    client: Client, service: FakeService, body: bytes, trouble: Trouble, said: str
) -> None:
    service.troubles = deque([trouble])
    with pytest.raises(Problem) as caught:
        await post(client, body)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
