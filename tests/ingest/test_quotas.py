"""Quotas of a key: how many batches and bytes in a minute, with Redis, without it, and when it dies in between."""

import gzip
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from schema.connection import Connection
from store.rate_windows import STEPS
from tests.ingest.client import CHAPTERS, Crawler, batch, chapter, refusal
from tests.ingest.conftest import MakeCrawler, OwnRedis, ServeWith, written
from tests.processes import Answer, Served

REQUESTS = "/wp-json/novel/v1/ingest/requests"
LIMIT = 3
MAX_BYTES = 50_000
QUOTAS = {"NOVEL_INGEST_REQUESTS_PER_MINUTE": str(LIMIT), "NOVEL_INGEST_BYTES_PER_MINUTE": str(MAX_BYTES)}
RATE_LIMITED = (429, "rate_limited")


@pytest.fixture(params=["redis", "database"])
def served(serve_with: ServeWith, request: pytest.FixtureRequest) -> Served:
    return serve_with(**QUOTAS, **({} if request.param == "redis" else {"NOVEL_REDIS_URL": ""}))


Age = Callable[[int], None]


@pytest.fixture
def age(conn: Connection, redis_url: str) -> Age:
    """Lets what was counted become older by some of the steps of its window."""

    def make_older(steps: int) -> None:
        conn.execute("UPDATE wp_novel_rate_windows SET bucket = bucket - %s WHERE bucket > 0 ORDER BY bucket", (steps,))
        with Redis.from_url(redis_url) as redis:
            for name in redis.scan_iter("novel:ratelimit:push:*"):
                counts = {field.decode(): value for field, value in redis.hgetall(name).items()}
                redis.delete(name)
                redis.hset(name, mapping={f"{key[0]}{int(key[1:]) - steps}": value for key, value in counts.items()})

    return make_older


def statuses(crawler: Crawler, times: int) -> list[int]:
    return [crawler.push(chapter()).status for _ in range(times)]


def test_past_its_requests_a_key_has_to_wait(crawler: Crawler, conn: Connection) -> None:
    assert statuses(crawler, LIMIT) == [202] * LIMIT
    before = written(conn)
    refused = crawler.push(chapter())
    assert refusal(refused) == RATE_LIMITED
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert written(conn) == before


def test_another_key_has_a_quota_of_its_own(crawler: Crawler, make_crawler: MakeCrawler) -> None:
    assert statuses(crawler, LIMIT + 1)[-1] == 429
    assert make_crawler().push(chapter()).status == 202


def test_a_minute_later_a_key_may_push_as_much_again_and_what_was_refused_did_not_count(
    crawler: Crawler, age: Age
) -> None:
    assert statuses(crawler, LIMIT + 5) == [202] * LIMIT + [429] * 5
    age(STEPS)
    assert statuses(crawler, LIMIT + 1) == [202] * LIMIT + [429]


def test_the_window_slides(crawler: Crawler, age: Age) -> None:
    assert statuses(crawler, LIMIT - 1) == [202] * (LIMIT - 1)
    age(STEPS // 2)
    assert statuses(crawler, 2) == [202, 429]
    age(STEPS // 2)  # of the two halves of the window, the older is over
    assert statuses(crawler, LIMIT) == [202] * (LIMIT - 1) + [429]


def test_a_repetition_does_not_count(crawler: Crawler) -> None:
    body = batch(chapter())
    answers = [crawler.post(CHAPTERS, body, Idempotency_Key="k") for _ in range(LIMIT * 2)]
    assert {(answer.status, answer.body) for answer in answers} == {(202, answers[0].body)}
    assert statuses(crawler, LIMIT) == [202] * (LIMIT - 1) + [429]
    assert crawler.post(CHAPTERS, body, Idempotency_Key="k").body == answers[0].body  # even past the quota


def test_what_is_refused_before_the_quota_does_not_count(crawler: Crawler) -> None:
    assert crawler.push(chapter(), nonce="n", Idempotency_Key="k").status == 202
    for _ in range(LIMIT * 2):
        assert refusal(crawler.push(chapter(), nonce="n")) == (401, "nonce_replay")
        assert refusal(crawler.push(chapter(2), Idempotency_Key="k")) == (409, "idempotency_conflict")
        assert crawler.push(chapter(), X_Novel_Signature="0" * 64).status == 401
        assert crawler.post(CHAPTERS, b"nonsense").status == 400
    assert statuses(crawler, LIMIT) == [202] * (LIMIT - 1) + [429]


def large(size: int) -> bytes:
    return batch(chapter(content_raw="x" * size))


def test_bytes_count_as_they_are_when_decompressed(crawler: Crawler) -> None:
    packed = gzip.compress(large(30_000))
    assert len(packed) < 1000
    assert crawler.post(CHAPTERS, packed, Content_Encoding="gzip").status == 202
    refused = crawler.post(CHAPTERS, packed, Content_Encoding="gzip")
    assert refusal(refused) == RATE_LIMITED
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refusal(crawler.post(CHAPTERS, large(30_000))) == RATE_LIMITED
    assert crawler.post(CHAPTERS, large(15_000)).status == 202  # there is room for that much


def test_questions_have_a_count_of_their_own_ten_times_as_large(crawler: Crawler) -> None:
    assert statuses(crawler, LIMIT + 1)[-1] == 429
    path = f"{REQUESTS}/{uuid.uuid4()}"
    assert {crawler.get(path).status for _ in range(LIMIT * 10)} == {404}
    refused = crawler.get(path)
    assert refusal(refused) == RATE_LIMITED
    assert 1 <= int(refused.headers["retry-after"]) <= 60


def test_questions_do_not_use_up_the_quota_of_batches(crawler: Crawler) -> None:
    assert crawler.get(f"{REQUESTS}/{uuid.uuid4()}").status == 404
    assert statuses(crawler, LIMIT + 1) == [202] * LIMIT + [429]


def test_a_question_that_is_replayed_does_not_count(crawler: Crawler) -> None:
    """Else whoever has overheard one could keep its crawler from asking."""
    path = f"{REQUESTS}/{uuid.uuid4()}"
    assert crawler.get(path, nonce="n").status == 404
    assert {refusal(crawler.get(path, nonce="n")) for _ in range(LIMIT * 10)} == {(401, "nonce_replay")}
    assert crawler.get(path).status == 404


def test_those_who_come_at_once_are_counted_all_the_same(crawler: Crawler) -> None:
    with ThreadPoolExecutor(12) as threads:
        found = sorted(threads.map(lambda _: crawler.push(chapter()).status, range(12)))
    assert found == [202] * LIMIT + [429] * (12 - LIMIT)


def test_a_redis_that_dies_leaves_a_quota_behind(
    serve_with: ServeWith, make_key: Callable[[], tuple[str, str]], own_redis: OwnRedis
) -> None:
    served = serve_with(**QUOTAS, NOVEL_REDIS_URL=own_redis.url, NOVEL_REDIS_RETRY_SECONDS="0.1")
    crawler = Crawler(served.port, *make_key())
    assert statuses(crawler, LIMIT + 1) == [202] * LIMIT + [429]
    own_redis.kill()
    # What Redis had counted is lost with it; the database counts anew.
    assert statuses(crawler, LIMIT * 2) == [202] * LIMIT + [429] * LIMIT
    own_redis.start()
    answers: list[Answer] = []
    while served.said().count("redis.back") == 0:
        answers.append(crawler.push(chapter()))
        assert len(answers) < 10_000
    assert {refusal(answer) for answer in answers} == {RATE_LIMITED}
    assert served.metric('novel_redis_fallbacks_total{use="rate_limit"}') > 0
