"""Nonces: each is good once, also when Redis comes and goes; what is refused does not use one up."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from redis import Redis

from schema.connection import Connection
from store import nonces
from tests.ingest.client import CHAPTERS, STORIES, Crawler, batch, chapter, refusal, story
from tests.ingest.conftest import MakeCrawler, MakeKey, OwnRedis, ServeWith, written
from tests.processes import Answer, Served

REQUESTS = "/wp-json/novel/v1/ingest/requests"
BODY = batch(chapter(1))
NONCE_REPLAY = (401, "nonce_replay")


@pytest.fixture(params=["redis", "database"])
def served(serve_with: ServeWith, request: pytest.FixtureRequest) -> Served:
    return serve_with() if request.param == "redis" else serve_with(NOVEL_REDIS_URL="")


def replayed(crawler: Crawler, nonce: str) -> Answer:
    """As a thief would: another batch, with an Idempotency-Key and a request id of its own."""
    return crawler.push(chapter(2), nonce=nonce)


def test_a_nonce_is_good_once(crawler: Crawler, conn: Connection) -> None:
    assert crawler.push(chapter(), nonce="n").status == 202
    before = written(conn)
    sent = crawler.headers("POST", CHAPTERS, BODY, nonce="n")
    assert refusal(crawler.send("POST", CHAPTERS, BODY, sent)) == NONCE_REPLAY
    assert refusal(replayed(crawler, "n")) == NONCE_REPLAY
    assert refusal(crawler.push(story(), path=STORIES, nonce="n")) == NONCE_REPLAY
    assert written(conn) == before == dict.fromkeys(before, 1)
    assert "nonce_replay" in before


def test_the_very_same_request_gets_its_answer_again_though_its_nonce_was_seen(
    crawler: Crawler, conn: Connection
) -> None:
    sent = crawler.headers("POST", CHAPTERS, BODY)
    first = crawler.send("POST", CHAPTERS, BODY, sent)
    again = crawler.send("POST", CHAPTERS, BODY, sent)
    assert (first.status, again.status) == (202, 202)
    assert again.body == first.body
    assert written(conn)["ingest_requests"] == 1


def test_two_keys_may_use_the_same_nonce(crawler: Crawler, make_crawler: MakeCrawler) -> None:
    assert crawler.push(chapter(), nonce="n").status == 202
    assert make_crawler().push(chapter(), nonce="n").status == 202


def test_nonces_are_told_apart_byte_by_byte(crawler: Crawler) -> None:
    assert [crawler.push(chapter(), nonce=nonce).status for nonce in ("n", "N", "nn", "n.")] == [202] * 4


def test_a_nonce_of_a_question_is_good_once_too(crawler: Crawler) -> None:
    path = f"{REQUESTS}/{crawler.push(chapter(), nonce='push').json()['request_id']}"
    assert crawler.get(path, nonce="n").status == 200
    assert refusal(crawler.get(path, nonce="n")) == NONCE_REPLAY
    assert refusal(crawler.get(path + "/items", nonce="n")) == NONCE_REPLAY
    assert refusal(crawler.get(path, nonce="push")) == NONCE_REPLAY
    assert refusal(crawler.push(chapter(), nonce="n")) == NONCE_REPLAY


def test_of_several_at_once_with_the_same_nonce_one_is_accepted(crawler: Crawler, conn: Connection) -> None:
    def push(number: int) -> Answer:
        body = batch(chapter(number))
        sent = crawler.headers("POST", CHAPTERS, body, nonce=nonce)
        barrier.wait()
        return crawler.send("POST", CHAPTERS, body, sent)

    for times in range(1, 6):
        barrier, nonce = Barrier(8), f"n{times}"
        with ThreadPoolExecutor(8) as threads:
            answers = sorted(threads.map(push, range(8)), key=lambda answer: answer.status)
        assert answers[0].status == 202
        assert {refusal(answer) for answer in answers[1:]} == {NONCE_REPLAY}
        assert written(conn) == dict.fromkeys(written(conn), times)


# -- what is refused uses up nothing --------------------------------------------------------------------


def refuse_as_invalid(crawler: Crawler) -> Answer:
    return crawler.push({"bad": 1}, nonce="n", Idempotency_Key="k")


def refuse_as_conflict(crawler: Crawler) -> Answer:
    crawler.push(chapter(7), Idempotency_Key="other")
    return crawler.push(chapter(8), nonce="n", Idempotency_Key="other")


def refuse_as_broken(crawler: Crawler) -> Answer:
    return crawler.post(CHAPTERS, b"{", nonce="n", Idempotency_Key="k")


def refuse_as_unsigned(crawler: Crawler) -> Answer:
    return crawler.push(chapter(), nonce="n", Idempotency_Key="k", X_Novel_Signature="0" * 64)


def refuse_as_unknown(crawler: Crawler) -> Answer:
    return crawler.push(chapter(), nonce="n", Idempotency_Key="k", X_Novel_Request_Id="1")


@pytest.mark.parametrize(
    ("refuse", "status"),
    [
        (refuse_as_invalid, 422),
        (refuse_as_conflict, 409),
        (refuse_as_broken, 400),
        (refuse_as_unsigned, 401),
        (refuse_as_unknown, 400),
    ],
)
def test_a_request_that_is_refused_uses_up_neither_nonce_nor_key(
    crawler: Crawler, refuse: Callable[[Crawler], Answer], status: int
) -> None:
    assert refuse(crawler).status == status
    assert crawler.push(chapter(), nonce="n", Idempotency_Key="k").status == 202


@pytest.mark.parametrize("redis", [{}, {"NOVEL_REDIS_URL": ""}], ids=["redis", "database"])
def test_a_request_over_the_quota_uses_up_neither_nonce_nor_key(
    serve_with: ServeWith, make_key: MakeKey, conn: Connection, redis_url: str, redis: dict[str, str]
) -> None:
    crawler = Crawler(serve_with(NOVEL_INGEST_REQUESTS_PER_MINUTE="1", **redis).port, *make_key())
    assert crawler.push(chapter()).status == 202
    sent = crawler.headers("POST", CHAPTERS, BODY)
    for _ in range(2):
        assert refusal(crawler.send("POST", CHAPTERS, BODY, sent)) == (429, "rate_limited")
    conn.execute("DELETE FROM wp_novel_rate_windows")
    with Redis.from_url(redis_url) as remembering:
        remembering.delete(f"novel:ratelimit:push:{crawler.key_id.removesuffix('.1')}")
    assert crawler.send("POST", CHAPTERS, BODY, sent).status == 202


# -- Redis comes and goes -------------------------------------------------------------------------------


def until_redis_is_back(served: Served, crawler: Crawler) -> None:
    seen = served.said().count("redis.back")
    for _ in range(10_000):
        assert crawler.push(chapter()).status == 202
        if served.said().count("redis.back") > seen:
            return
    raise AssertionError("Redis is not used again")


def test_no_nonce_is_accepted_again_while_redis_comes_and_goes_and_ingest_goes_on(
    serve_with: ServeWith, make_key: MakeKey, own_redis: OwnRedis
) -> None:
    served = serve_with(NOVEL_REDIS_URL=own_redis.url, NOVEL_REDIS_RETRY_SECONDS="0.1")
    crawler = Crawler(served.port, *make_key())
    path = f"{REQUESTS}/{uuid.uuid4()}"
    used: list[str] = []

    def use(*names: str) -> None:
        for name in names:
            assert crawler.push(chapter(), nonce=name).status == 202
            assert crawler.get(path, nonce=f"{name}-asking").status == 404
            used.extend([name, f"{name}-asking"])

    def all_are_refused() -> bool:
        return (
            {refusal(replayed(crawler, nonce)) for nonce in used}
            == {NONCE_REPLAY}
            == {refusal(crawler.get(path, nonce=nonce)) for nonce in used}
        )

    use("with-redis-1", "with-redis-2")
    assert all_are_refused()
    own_redis.kill()
    assert all_are_refused()
    use("without-1", "without-2")
    assert all_are_refused()
    own_redis.start()
    until_redis_is_back(served, crawler)
    assert all_are_refused()
    use("with-redis-again")
    own_redis.kill(and_forget=True)
    use("without-again")
    own_redis.start()
    until_redis_is_back(served, crawler)
    assert all_are_refused()
    assert "redis.lost" in served.said()
    assert served.metric('novel_redis_fallbacks_total{use="nonce"}') > 0


def test_redis_is_told_of_a_nonce_only_once_it_is_taken(
    serve_with: ServeWith, make_key: MakeKey, own_redis: OwnRedis
) -> None:
    crawler = Crawler(serve_with(NOVEL_REDIS_URL=own_redis.url).port, *make_key())
    name = f"novel:nonce:{nonces.fingerprint(crawler.key_id, 'n').hex()}"
    with Redis.from_url(own_redis.url) as redis:
        assert refusal(crawler.push({"bad": 1}, nonce="n")) == (422, "invalid_schema")
        assert redis.exists(name) == 0
        assert crawler.push(chapter(), nonce="n").status == 202
        assert 590 <= redis.ttl(name) <= 600


# -- in time --------------------------------------------------------------------------------------------


def let_time_pass(conn: Connection, redis_url: str, crawler: Crawler, *names: str) -> None:
    """As if their ten minutes were over."""
    conn.execute("UPDATE wp_novel_nonce_replay SET expires_at = UTC_TIMESTAMP() - INTERVAL 1 SECOND")
    with Redis.from_url(redis_url) as redis:
        redis.delete(*(f"novel:nonce:{nonces.fingerprint(crawler.key_id, name).hex()}" for name in names))


def test_after_ten_minutes_a_nonce_is_good_again(crawler: Crawler, conn: Connection, redis_url: str) -> None:
    path = f"{REQUESTS}/{uuid.uuid4()}"
    assert crawler.push(chapter(), nonce="n").status == 202
    assert crawler.get(path, nonce="g").status == 404
    [(shortest, longest)] = conn.fetch_all(
        "SELECT MIN(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), expires_at)),"
        " MAX(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), expires_at)) FROM wp_novel_nonce_replay"
    )
    assert 650 <= shortest <= longest <= 660
    let_time_pass(conn, redis_url, crawler, "n", "g")
    assert crawler.push(chapter(), nonce="n").status == 202
    assert crawler.get(path, nonce="g").status == 404
    assert refusal(replayed(crawler, "n")) == NONCE_REPLAY
    assert refusal(crawler.get(path, nonce="g")) == NONCE_REPLAY
