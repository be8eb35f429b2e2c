"""The door: which check answers first, who may do what, and what it tells to whom."""

import gzip
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from starlette.requests import Request

from ingest import signature
from ingest.door import Door
from ingest.errors import InvalidSignature
from ingest.headers import Signed
from ingest.reading import Body
from ingest.room import Hold, Room
from runtime.settings import Settings
from schema.connection import Connection
from store import api_keys, key_ring, rate_windows
from store.pool import Pool
from store.redis_link import RedisLink
from tests.ingest.client import CHAPTERS, STORIES, Crawler, batch, chapter, refusal, story
from tests.ingest.conftest import MakeCrawler, MakeKey, ServeWith, written
from tests.processes import Answer, Served, wait_for

REBUILD_STATS = "/wp-json/novel/v1/ingest/rebuild-stats"
REQUESTS = "/wp-json/novel/v1/ingest/requests"
BODY = batch(chapter(1))
INVALID_SIGNATURE = (401, "invalid_signature")
KEY_INACTIVE = (403, "key_inactive")
PERMISSION_DENIED = (403, "permission_denied")


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with()


# -- order ----------------------------------------------------------------------------------------------

Change = Callable[[dict[str, str]], None]


def sets(name: str, value: str) -> Change:
    return lambda sent: sent.__setitem__(name, value)


def drops(name: str) -> Change:
    def drop(sent: dict[str, str]) -> None:
        sent.pop(name, None)

    return drop


BAD_SIGNATURE = sets("X-Novel-Signature", "0" * 64)
OLD = sets("X-Novel-Timestamp", "1")
UNKNOWN_ENCODING = sets("Content-Encoding", "br")
# Each is refused before those that come after it, whatever else is wrong.
FAULTS: list[tuple[Change, tuple[int, str]]] = [
    (sets("X-Forwarded-Proto", "http"), (403, "https_required")),
    (drops("X-Novel-Nonce"), INVALID_SIGNATURE),
    (sets("X-Novel-Request-Id", "1"), (400, "invalid_schema")),
    (drops("Idempotency-Key"), (400, "missing_idempotency_key")),
    (UNKNOWN_ENCODING, (415, "unsupported_encoding")),
    (OLD, (401, "timestamp_skew")),
    (BAD_SIGNATURE, INVALID_SIGNATURE),
    (sets("Content-Encoding", "gzip"), (400, "invalid_schema")),
]


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_earlier_one_is_told(crawler: Crawler, conn: Connection, first: int) -> None:
    _, expected = FAULTS[first]
    for later, _ in FAULTS[first:]:
        sent = crawler.headers("POST", CHAPTERS, b"{")
        later(sent)
        FAULTS[first][0](sent)
        assert refusal(crawler.send("POST", CHAPTERS, b"{", sent)) == expected
    assert written(conn) == {}


def test_a_declared_size_is_refused_before_anything_is_looked_at(crawler: Crawler) -> None:
    sent = {"Content-Length": str(12 * 1024 * 1024 + 1), "X-Novel-Signature": "bad"}
    assert refusal(crawler.send("POST", CHAPTERS, None, sent)) == (413, "payload_too_large")


def test_permission_comes_before_the_nonce(make_crawler: MakeCrawler) -> None:
    crawler = make_crawler("ingest:stories")
    assert crawler.push(story(), path=STORIES, nonce="once").status == 202
    assert refusal(crawler.push(chapter(), nonce="once")) == PERMISSION_DENIED
    assert refusal(crawler.push(story(), path=STORIES, nonce="once")) == (401, "nonce_replay")


def test_a_bad_signature_is_told_before_a_missing_permission(make_crawler: MakeCrawler) -> None:
    crawler = make_crawler("ingest:stories")
    crawler.secret += "x"
    assert refusal(crawler.push(chapter())) == INVALID_SIGNATURE


def test_what_is_in_the_body_matters_only_after_the_permission(make_crawler: MakeCrawler) -> None:
    assert refusal(make_crawler("ingest:stories").post(CHAPTERS, b"nonsense")) == PERMISSION_DENIED


def test_a_bomb_is_not_opened_for_who_may_not_push(make_crawler: MakeCrawler) -> None:
    bomb = gzip.compress(b"0" * (13 << 20))
    assert refusal(make_crawler("ingest:stories").post(CHAPTERS, bomb, Content_Encoding="gzip")) == PERMISSION_DENIED
    assert refusal(make_crawler().post(CHAPTERS, bomb, Content_Encoding="gzip")) == (413, "payload_too_large")


def test_an_earlier_answer_comes_before_the_nonce_and_a_conflict_too(crawler: Crawler) -> None:
    first = crawler.post(CHAPTERS, BODY, nonce="n", Idempotency_Key="k")
    again = crawler.post(CHAPTERS, BODY, nonce="n", Idempotency_Key="k")
    assert (again.status, again.body) == (first.status, first.body)
    assert refusal(crawler.push(chapter(2), nonce="n", Idempotency_Key="k")) == (409, "idempotency_conflict")
    assert refusal(crawler.push(chapter(2), nonce="n", Idempotency_Key="k2")) == (401, "nonce_replay")


def test_the_nonce_comes_before_the_items(crawler: Crawler) -> None:
    assert crawler.push(chapter(), nonce="n").status == 202
    assert refusal(crawler.push({"bad": 1}, nonce="n")) == (401, "nonce_replay")


# -- what is told about keys ----------------------------------------------------------------------------


def unknown_key_id() -> str:
    return f"nk_{uuid.uuid4().hex[:16]}.1"


def without_id(answer: Answer) -> tuple[int, bytes, dict[str, str]]:
    """All that a client can see, but for what is different in every answer."""
    own = ("date", "x-request-id")
    return answer.status, answer.body, {name: value for name, value in answer.headers.items() if name not in own}


def test_an_unknown_key_and_a_wrong_signature_get_the_same_answer(crawler: Crawler, conn: Connection) -> None:
    wrong = Crawler(crawler.port, crawler.key_id, "not the secret")
    unknown = Crawler(crawler.port, unknown_key_id(), crawler.secret)
    for method, path in (("POST", CHAPTERS), ("GET", f"{REQUESTS}/{uuid.uuid4()}")):
        seen = [without_id(each.send(method, path, b"", each.headers(method, path))) for each in (wrong, unknown)]
        assert seen[0] == seen[1]
        assert seen[0][0] == 401
    assert written(conn) == {}


def test_a_key_id_that_was_never_given_out_has_no_secret_that_works(
    crawler: Crawler, environ: dict[str, str], conn: Connection
) -> None:
    """Not even the one that the master key makes for it."""
    key_id = unknown_key_id()
    secret = api_keys.derive_secret(environ["NOVEL_MASTER_KEY"], key_id)
    assert refusal(Crawler(crawler.port, key_id, secret).push(chapter())) == INVALID_SIGNATURE
    assert written(conn) == {}


async def test_an_unknown_key_and_a_wrong_signature_take_the_same_way(
    make_key: MakeKey, pool: Pool, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, bool]] = []

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(*arguments: Any, **more: Any) -> Any:
            steps.append((name, any(key_id in repr((arguments, more)) for key_id in key_ids)))
            return real(*arguments, **more)

        monkeypatch.setattr(module, name, watched)

    key_ids = [make_key()[0], unknown_key_id()]
    for module, name in (
        (key_ring, "find"),
        (signature, "sign"),
        (signature, "matches"),
        (rate_windows, "take"),
        (key_ring, "lock"),
    ):
        watch(module, name)
    redis = RedisLink(test_settings.redis)
    door = Door(test_settings.ingest, pool=pool, redis=redis, master_key=test_settings.secrets.master_key or "")
    request = Request({"type": "http", "method": "POST", "path": CHAPTERS, "headers": []})
    body = Body(bytearray(), "", Hold(Room(max_bytes=1), 0, None))
    ways = []
    for key_id in key_ids:
        steps.clear()
        signed = Signed(key_id, "1771660800", "n", "0" * 64)
        for _ in range(test_settings.ingest.lock_failures):
            with pytest.raises(InvalidSignature):
                await door.verify(request, signed, body, permission=None)
        ways.append([*steps])
    await redis.close()
    once = [("find", True), ("sign", False), ("matches", False), ("take", True)]
    assert ways[0] == ways[1] == once * test_settings.ingest.lock_failures + [("lock", True)]


def revoke(conn: Connection, key_id: str) -> None:
    api_keys.revoke(conn, key_id, operator="test")


def expire(conn: Connection, key_id: str) -> None:
    conn.execute(
        "UPDATE wp_novel_api_key_terms SET expires_at = UTC_TIMESTAMP() - INTERVAL 1 SECOND WHERE key_id = %s",
        (key_id,),
    )


def lock(conn: Connection, key_id: str) -> None:
    conn.execute(
        "UPDATE wp_novel_api_key_terms SET locked_until = UTC_TIMESTAMP() + INTERVAL 1 HOUR WHERE key_id = %s",
        (key_id,),
    )


@pytest.mark.parametrize("end", [revoke, expire, lock])
def test_that_a_key_is_over_is_told_only_to_who_has_its_secret(
    crawler: Crawler, conn: Connection, end: Callable[[Connection, str], None]
) -> None:
    assert crawler.push(chapter()).status == 202
    before = written(conn)
    end(conn, crawler.key_id)
    assert refusal(crawler.push(chapter())) == KEY_INACTIVE
    assert refusal(crawler.get(f"{REQUESTS}/{uuid.uuid4()}")) == KEY_INACTIVE
    stranger = Crawler(crawler.port, crawler.key_id, "not the secret")
    unknown = Crawler(crawler.port, unknown_key_id(), "not the secret")
    assert without_id(stranger.push(chapter())) == without_id(unknown.push(chapter()))
    assert written(conn) == before


def test_a_key_whose_end_is_still_to_come_works(crawler: Crawler, conn: Connection) -> None:
    conn.execute("UPDATE wp_novel_api_key_terms SET expires_at = UTC_TIMESTAMP() + INTERVAL 1 HOUR")
    assert crawler.push(chapter()).status == 202


def test_a_key_from_before_there_were_terms_works(crawler: Crawler, conn: Connection) -> None:
    conn.execute("DELETE FROM wp_novel_api_key_terms")
    assert crawler.push(chapter()).status == 202


def test_a_key_whose_hash_was_changed_is_refused_though_its_signature_is_right(
    crawler: Crawler, served: Served, make_crawler: MakeCrawler, conn: Connection
) -> None:
    """A row put in by hand for a key id that was never given out: its secret follows from the master key alone."""
    other = make_crawler()
    conn.execute(
        "UPDATE wp_novel_api_keys mine JOIN wp_novel_api_keys theirs ON theirs.key_id = %s"
        " SET mine.secret_hash = theirs.secret_hash WHERE mine.key_id = %s",
        (other.key_id, crawler.key_id),
    )
    assert refusal(crawler.push(chapter())) == INVALID_SIGNATURE
    assert any("api_key.hash_mismatch" in line and crawler.key_id in line for line in served.said().splitlines())


def test_the_use_of_a_key_is_noted(crawler: Crawler, conn: Connection) -> None:
    assert conn.fetch_all("SELECT last_used_at FROM wp_novel_api_keys") == [(None,)]
    assert refusal(crawler.push({"bad": 1})) == (422, "invalid_schema")
    assert crawler.push(chapter()).status == 202
    used = "SELECT last_used_at BETWEEN UTC_TIMESTAMP() - INTERVAL 1 MINUTE AND UTC_TIMESTAMP() FROM wp_novel_api_keys"
    wait_for(lambda: conn.fetch_all(used) == [(1,)])


# -- logs -----------------------------------------------------------------------------------------------


def seen_in(text: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word in text]


def test_logs_have_no_secrets_signatures_or_texts(serve_with: ServeWith, make_key: MakeKey) -> None:
    served = serve_with(NOVEL_LOG_LEVEL="debug")
    crawler = Crawler(served.port, *make_key())
    body = batch(chapter(1, content_raw="Lời-không-được-ghi"), {"content_raw": "Words-not-to-be-logged"})
    sent = crawler.headers("POST", CHAPTERS, body)
    assert crawler.send("POST", CHAPTERS, body, sent).status == 200
    sent_wrong = crawler.headers("POST", CHAPTERS, body) | {"X-Novel-Signature": "f00d" * 16}
    assert refusal(crawler.send("POST", CHAPTERS, body, sent_wrong)) == INVALID_SIGNATURE
    assert refusal(crawler.send("POST", CHAPTERS, body + b" ", sent)) == INVALID_SIGNATURE
    broken = b'{"source": "a", "items": ["Words-not-to-be-logged'
    assert crawler.post(CHAPTERS, broken).status == 400
    assert refusal(crawler.push({"title": "Words-not-to-be-logged"})) == (422, "invalid_schema")
    state = crawler.get(f"{REQUESTS}/{sent['X-Novel-Request-Id']}")
    assert state.status == 200
    wait_for(lambda: served.said().count("http.answered") >= 6)
    said = served.said()
    assert "ingest.accepted" in said
    assert "ingest.refused" in said
    secrets = [crawler.secret, sent["X-Novel-Signature"], sent_wrong["X-Novel-Signature"], "$argon2id$", "master key"]
    assert seen_in(said, [*secrets, "Lời-không", "Words-not", "L\\u1eddi", sent["X-Novel-Nonce"]]) == []
