"""A key is locked after too many wrong signatures; but not when it is we who have the wrong master key."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from schema.connection import Connection
from tests.conftest import NovelCommand
from tests.ingest.client import Crawler, chapter, refusal
from tests.ingest.conftest import MakeCrawler, MakeKey, ServeWith, written
from tests.processes import Served, wait_for

FAILURES = 5
LOCKED = "novel_ingest_keys_locked_total"
INVALID_SIGNATURE = (401, "invalid_signature")
KEY_INACTIVE = (403, "key_inactive")


@pytest.fixture(params=["redis", "database"])
def served(serve_with: ServeWith, request: pytest.FixtureRequest) -> Served:
    redis = {} if request.param == "redis" else {"NOVEL_REDIS_URL": ""}
    return serve_with(NOVEL_INGEST_LOCK_FAILURES=str(FAILURES), NOVEL_INGEST_LOCK_SECONDS="1800", **redis)


def fail(crawler: Crawler, times: int) -> None:
    stranger = Crawler(crawler.port, crawler.key_id, "not the secret")
    for _ in range(times):
        assert refusal(stranger.push(chapter())) == INVALID_SIGNATURE


def journal(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.fetch_all(
        "SELECT level, reference_id, message, context_json FROM wp_novel_sync_logs"
        " WHERE event_type = 'api_key.locked' ORDER BY id"
    )


def is_locked(conn: Connection, key_id: str) -> bool:
    return bool(
        conn.fetch_all(
            "SELECT 1 FROM wp_novel_api_key_terms WHERE key_id = %s AND locked_until > UTC_TIMESTAMP()", (key_id,)
        )
    )


def test_after_too_many_wrong_signatures_a_key_is_locked_and_operators_are_told(
    crawler: Crawler, served: Served, conn: Connection
) -> None:
    before = served.metric(LOCKED)
    fail(crawler, FAILURES - 1)
    assert crawler.push(chapter()).status == 202
    fail(crawler, 1)
    refused = crawler.push(chapter())
    assert refusal(refused) == KEY_INACTIVE
    assert "novel keys unlock" in refused.json()["message"]
    assert written(conn)["ingest_requests"] == 1
    [(level, key_id, message, context)] = journal(conn)
    assert (level, key_id) == ("warning", crawler.key_id)
    assert message == f"API key {crawler.key_id} was locked for 1800 s after {FAILURES} wrong signatures."
    assert json.loads(context) == {"seconds": 1800, "failures": FAILURES}
    assert served.metric(LOCKED) == before + 1
    assert "api_key.locked" in served.said()


def test_who_does_not_know_the_secret_does_not_learn_of_the_lock(crawler: Crawler) -> None:
    fail(crawler, FAILURES)
    fail(crawler, FAILURES)


def test_another_key_is_not_locked_with_it(crawler: Crawler, make_crawler: MakeCrawler) -> None:
    other = make_crawler()
    fail(crawler, FAILURES)
    assert other.push(chapter()).status == 202


def test_many_wrong_signatures_at_once_lock_a_key_and_say_so_once(
    crawler: Crawler, served: Served, conn: Connection
) -> None:
    before = served.metric(LOCKED)
    with ThreadPoolExecutor(10) as threads:
        list(threads.map(lambda _: fail(crawler, 3), range(10)))
    assert refusal(crawler.push(chapter())) == KEY_INACTIVE
    assert len(journal(conn)) == 1
    assert served.metric(LOCKED) == before + 1


def test_a_locked_key_is_not_journalled_for_each_further_wrong_signature(crawler: Crawler, conn: Connection) -> None:
    fail(crawler, FAILURES)
    fail(crawler, FAILURES - 1)
    assert len(journal(conn)) == 1


def test_an_operator_can_unlock_a_key(
    crawler: Crawler, conn: Connection, novel: NovelCommand, environ: dict[str, str]
) -> None:
    fail(crawler, FAILURES)
    assert refusal(crawler.push(chapter())) == KEY_INACTIVE
    unlocked = novel("keys", "unlock", crawler.key_id, **environ)
    assert unlocked.returncode == 0, unlocked.stderr
    assert crawler.push(chapter()).status == 202
    fail(crawler, FAILURES - 1)  # those before are forgiven
    assert crawler.push(chapter()).status == 202
    fail(crawler, 1)
    assert refusal(crawler.push(chapter())) == KEY_INACTIVE


def test_a_lock_ends_by_itself(crawler: Crawler, conn: Connection) -> None:
    fail(crawler, FAILURES)
    [(seconds,)] = conn.fetch_all(
        "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), locked_until) FROM wp_novel_api_key_terms WHERE key_id = %s",
        (crawler.key_id,),
    )
    assert 1700 < seconds <= 1800
    conn.execute("UPDATE wp_novel_api_key_terms SET locked_until = UTC_TIMESTAMP()")
    assert crawler.push(chapter()).status == 202


def test_right_signatures_and_other_refusals_lock_nothing(crawler: Crawler, conn: Connection) -> None:
    for _ in range(FAILURES * 2):
        assert crawler.push({"bad": 1}).status == 422
        assert crawler.push(chapter(), X_Novel_Timestamp="1").status == 401
        assert crawler.push(chapter(), X_Novel_Nonce="").status == 401
    assert crawler.push(chapter()).status == 202
    assert journal(conn) == []


def test_a_key_that_does_not_exist_leaves_nothing_behind(served: Served, conn: Connection) -> None:
    before = served.metric(LOCKED)
    fail(Crawler(served.port, f"nk_{uuid.uuid4().hex[:16]}.1", ""), FAILURES * 2)
    assert journal(conn) == []
    assert conn.fetch_all("SELECT key_id FROM wp_novel_api_key_terms") == []
    assert served.metric(LOCKED) == before


# -- the wrong master key -------------------------------------------------------------------------------

WRONG = {"NOVEL_MASTER_KEY": "another master key, as long as that one"}


def test_with_the_wrong_master_key_the_log_says_so(serve_with: ServeWith, make_key: MakeKey) -> None:
    served = serve_with(NOVEL_INGEST_LOCK_FAILURES=str(FAILURES), **WRONG)
    crawler = Crawler(served.port, *make_key())
    assert refusal(crawler.push(chapter())) == INVALID_SIGNATURE
    sentence = (
        f"API key {crawler.key_id} was made under another master key. Set NOVEL_MASTER_KEY to the one it was made with."
    )
    wait_for(lambda: sentence in served.said())
    [line] = [line for line in served.said().splitlines() if sentence in line]
    said = json.loads(line)
    assert (said["event"], said["level"], said["key_id"]) == ("api_key.hash_mismatch", "error", crawler.key_id)


def test_with_the_wrong_master_key_no_key_is_locked(serve_with: ServeWith, make_key: MakeKey, conn: Connection) -> None:
    """However many crawlers push, and however fast."""
    served = serve_with(NOVEL_INGEST_LOCK_FAILURES=str(FAILURES), **WRONG)
    crawlers = [Crawler(served.port, *make_key()) for _ in range(3)]
    with ThreadPoolExecutor(6) as threads:
        found = set(threads.map(lambda number: refusal(crawlers[number % 3].push(chapter())), range(60)))
    assert found == {INVALID_SIGNATURE}
    assert journal(conn) == []
    assert not any(is_locked(conn, crawler.key_id) for crawler in crawlers)
