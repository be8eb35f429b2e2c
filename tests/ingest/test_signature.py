"""The signature: by vectors made elsewhere, by the specification's own client, and with everything tampered in turn."""

import gzip
import hashlib
import hmac
import http.client
import json
import time
import uuid
from collections.abc import Callable

import pytest

from ingest import headers, signature
from ingest.errors import TimestampSkew
from schema.connection import Connection
from tests.ingest.client import CHAPTERS, STORIES, Crawler, batch, chapter, refusal
from tests.ingest.conftest import MakeCrawler, ServeWith, written
from tests.processes import HOST, Served

SECRET = "fO6uXYM5SJMPWyfWWNUpN9MIHtKs5sli86BTVZbEiUA"
REQUESTS = "/wp-json/novel/v1/ingest/requests"
BODY = batch(chapter(1))

INVALID_SIGNATURE = (401, "invalid_signature")
TIMESTAMP_SKEW = (401, "timestamp_skew")
INVALID_SCHEMA = (400, "invalid_schema")
MISSING_IDEMPOTENCY_KEY = (400, "missing_idempotency_key")


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with()


# -- pure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "timestamp", "nonce", "body", "signed"),
    [  # printf '%s' "$METHOD.$URL_PATH.$TIME.$NONCE.$(printf '%s' "$BODY" | sha256sum | cut -c -64)" |
        #     openssl dgst -sha256 -hmac "$SECRET"
        (
            *("POST", CHAPTERS, "1771660800", "6f1e9a", '{"source":"truyen-source-a","items":[]}'),
            "6009fa360fc2150b286bfa3f400c300bda3c2777f5fc8e17b9ba69ddca3e3ccf",
        ),
        (
            *("GET", f"{REQUESTS}/2f24b68a-b6d5-41d3-a4e8-33c8b679ab67", "1771660800", "6f1e9a", ""),
            "ca8b010cb09311f6d78ba84513a76eab1eebe24c2e7903640985fb25b86ebb5a",
        ),
        (
            *("POST", STORIES, "1771660801", "nonce.with.dots"),
            '{"source":"a","items":[{"title":"Đấu Phá Thương Khung"}]}',
            "0ceadba92eee2c1903037c0687ec8dcac4b3135329e85397c743bfe4d23fc63c",
        ),
    ],
)
def test_a_signature_is_what_openssl_makes_of_the_same(
    method: str, path: str, timestamp: str, nonce: str, body: str, signed: str
) -> None:
    body_sha256 = hashlib.sha256(body.encode()).hexdigest()
    parts = {"path": path, "timestamp": timestamp, "nonce": nonce, "body_sha256": body_sha256}
    assert signature.sign(SECRET, method=method, **parts) == signed
    assert signature.sign(SECRET, method=method.lower(), **parts) == signed
    assert signature.matches(signed, signed)


def test_another_value_of_any_part_makes_another_signature() -> None:
    parts = {"method": "POST", "path": CHAPTERS, "timestamp": "1771660800", "nonce": "n", "body_sha256": "0" * 64}
    others = [{**parts, name: value + "1"} for name, value in parts.items()]
    signatures = {signature.sign(SECRET, **each) for each in [parts, *others]}
    signatures.add(signature.sign(SECRET + "1", **parts))
    assert len(signatures) == len(parts) + 2


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text[:-1], lambda text: text + "0", lambda text: "", str.title]
)
def test_only_the_same_text_matches(change: Callable[[str], str]) -> None:
    signed = "6009fa360fc2150b286bfa3f400c300bda3c2777f5fc8e17b9ba69ddca3e3ccf"
    assert not signature.matches(change(signed), signed)


@pytest.mark.parametrize("text", ["é" * 64, "\udcff" * 64])
def test_a_signature_that_is_no_ascii_does_not_match_and_is_no_error(text: str) -> None:
    assert not signature.matches(text, "6009fa360fc2150b286bfa3f400c300bda3c2777f5fc8e17b9ba69ddca3e3ccf")


@pytest.mark.parametrize("now", [1771660500.0, 1771660800.0, 1771661100.0])
def test_a_clock_may_be_300_seconds_off(now: float) -> None:
    headers.check_timestamp("1771660800", now=now)


@pytest.mark.parametrize("now", [1771660499.9, 1771661100.1, 0.0])
def test_a_clock_may_not_be_more_than_300_seconds_off(now: float) -> None:
    with pytest.raises(TimestampSkew):
        headers.check_timestamp("1771660800", now=now)


# -- the specification's client -------------------------------------------------------------------------


def test_the_specifications_pseudocode_is_a_client_that_works(make_crawler: MakeCrawler, conn: Connection) -> None:
    """§18, line by line, with nothing of ours."""
    given = make_crawler()
    payload = {
        "source": "truyen-source-a",
        "items": [
            {
                "source_story_id": "abc123",
                "source_chapter_id": "c-1001",
                "chapter_no": 1,
                "slug": "chuong-1",
                "title": "Chuong 1",
                "content_raw": "...",
                "updated_at_source": "2026-02-21T08:05:00Z",
            }
        ],
    }
    raw_body = json.dumps(payload, separators=(",", ":")).encode()
    body_sha256 = hashlib.sha256(raw_body).hexdigest()
    timestamp, nonce, request_id = str(int(time.time())), uuid.uuid4().hex, str(uuid.uuid4())
    base = "POST" + "." + CHAPTERS + "." + timestamp + "." + nonce + "." + body_sha256
    connection = http.client.HTTPConnection(HOST, given.port, timeout=30)
    connection.request(
        "POST",
        "/wp-json/novel/v1/ingest/chapters/bulk",
        raw_body,
        {
            "X-Novel-Key-Id": given.key_id,
            "X-Novel-Timestamp": timestamp,
            "X-Novel-Nonce": nonce,
            "X-Novel-Request-Id": request_id,
            "Idempotency-Key": str(uuid.uuid4()),
            "X-Novel-Signature": hmac.new(given.secret.encode(), base.encode(), hashlib.sha256).hexdigest(),
        },
    )
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert (response.status, response.getheader("content-type")) == (202, "application/json")
    assert answer["request_id"] == request_id
    assert (answer["accepted_count"], answer["rejected_count"], answer["errors"]) == (1, 0, [])
    assert conn.fetch_all("SELECT request_id, source, external_ref FROM wp_novel_ingest_jobs")[0][:2] == (
        request_id,
        "truyen-source-a",
    )


# -- every header ---------------------------------------------------------------------------------------

MISSING = {
    "X-Novel-Key-Id": INVALID_SIGNATURE,
    "X-Novel-Timestamp": INVALID_SIGNATURE,
    "X-Novel-Nonce": INVALID_SIGNATURE,
    "X-Novel-Signature": INVALID_SIGNATURE,
    "X-Novel-Request-Id": INVALID_SCHEMA,
    "Idempotency-Key": MISSING_IDEMPOTENCY_KEY,
}


@pytest.mark.parametrize(("name", "expected"), MISSING.items())
def test_a_request_without_a_header_is_refused_and_leaves_nothing(
    crawler: Crawler, conn: Connection, name: str, expected: tuple[int, str]
) -> None:
    sent = crawler.headers("POST", CHAPTERS, BODY)
    del sent[name]
    answer = crawler.send("POST", CHAPTERS, BODY, sent)
    assert refusal(answer) == expected
    assert name in answer.json()["message"]
    assert written(conn) == {}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", ["X-Novel-Key-Id", "X-Novel-Timestamp", "X-Novel-Nonce", "X-Novel-Signature"])
def test_every_route_wants_the_signed_headers(crawler: Crawler, method: str, name: str) -> None:
    path = f"{REQUESTS}/{uuid.uuid4()}" if method == "GET" else "/wp-json/novel/v1/ingest/rebuild-stats"
    sent = crawler.headers(method, path)
    del sent[name]
    assert refusal(crawler.send(method, path, None, sent)) == INVALID_SIGNATURE


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("X-Novel-Key-Id", ["", "nk a", "n" * 65, "né"], INVALID_SIGNATURE),
        (
            "X-Novel-Timestamp",
            ["", "soon", "-1771660800", "1771660800.5", "1e9", "0x6", "９", "1" * 13],
            TIMESTAMP_SKEW,
        ),
        ("X-Novel-Nonce", ["", "a b", "n" * 129, "né"], INVALID_SIGNATURE),
        ("X-Novel-Signature", ["", "a b", "0" * 129, "né"], INVALID_SIGNATURE),
        (
            "X-Novel-Request-Id",
            ["", "1", "2f24b68ab6d541d3a4e833c8b679ab67", "{2f24b68a-b6d5-41d3-a4e8-33c8b679ab67}", "é" * 36, "g" * 36],
            INVALID_SCHEMA,
        ),
        ("Idempotency-Key", ["", "a b", "k" * 121, "né"], MISSING_IDEMPOTENCY_KEY),
    ],
)
def test_a_malformed_header_is_refused_and_leaves_nothing(
    crawler: Crawler, conn: Connection, name: str, values: list[str], expected: tuple[int, str]
) -> None:
    for value in values:
        sent: dict[str, str] = crawler.headers("POST", CHAPTERS, BODY)
        # http.client sends text as latin-1; these bytes are what a client that speaks UTF-8 would send.
        sent[name] = value.encode().decode("latin-1")
        assert refusal(crawler.send("POST", CHAPTERS, BODY, sent)) == expected, value
    assert written(conn) == {}


@pytest.mark.parametrize("off", [-310, 310, -86400, 86400])
def test_a_request_signed_at_another_time_is_refused(crawler: Crawler, conn: Connection, off: int) -> None:
    sent = crawler.headers("POST", CHAPTERS, BODY, timestamp=int(time.time()) + off)
    assert refusal(crawler.send("POST", CHAPTERS, BODY, sent)) == TIMESTAMP_SKEW
    assert written(conn) == {}


@pytest.mark.parametrize("off", [-280, 280])
def test_a_request_of_a_clock_a_little_off_is_accepted(crawler: Crawler, off: int) -> None:
    sent = crawler.headers("POST", CHAPTERS, BODY, timestamp=int(time.time()) + off)
    assert crawler.send("POST", CHAPTERS, BODY, sent).status == 202


@pytest.mark.parametrize("length", [1, 64, 128])
def test_a_nonce_may_have_up_to_128_characters(crawler: Crawler, length: int) -> None:
    assert crawler.post(CHAPTERS, BODY, nonce="~" * length).status == 202


def test_header_names_and_the_request_id_may_be_in_any_case(crawler: Crawler) -> None:
    request_id = str(uuid.uuid4())
    sent = crawler.headers("POST", CHAPTERS, BODY) | {"X-Novel-Request-Id": request_id.upper()}
    answer = crawler.send("POST", CHAPTERS, BODY, {name.upper(): value for name, value in sent.items()})
    assert answer.status == 202
    assert answer.json()["request_id"] == request_id


# -- tampered with --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tamper"),
    [
        ("X-Novel-Key-Id", lambda value: value.upper()),
        ("X-Novel-Key-Id", lambda value: value.removesuffix("1") + "2"),
        ("X-Novel-Timestamp", lambda value: str(int(value) + 1)),
        ("X-Novel-Timestamp", lambda value: "0" + value),
        ("X-Novel-Nonce", lambda value: value[::-1] + "0"),
        ("X-Novel-Nonce", lambda value: value.upper() + "A"),
        ("X-Novel-Signature", lambda value: value.upper()),
        ("X-Novel-Signature", lambda value: value[:-1] + ("1" if value[-1] == "0" else "0")),
        ("X-Novel-Signature", lambda value: value[:-1]),
        ("X-Novel-Signature", lambda value: "sha256=" + value),
        ("X-Novel-Signature", lambda value: "0" * 64),
    ],
)
def test_a_header_tampered_with_breaks_the_signature(
    crawler: Crawler, conn: Connection, name: str, tamper: Callable[[str], str]
) -> None:
    sent = crawler.headers("POST", CHAPTERS, BODY)
    # All digits would be the same in upper case.
    while sent["X-Novel-Signature"] == sent["X-Novel-Signature"].upper():
        sent = crawler.headers("POST", CHAPTERS, BODY)
    sent[name] = tamper(sent[name])
    assert refusal(crawler.send("POST", CHAPTERS, BODY, sent)) == INVALID_SIGNATURE
    assert written(conn) == {}


@pytest.mark.parametrize("body", [BODY + b" ", BODY.replace(b"1", b"2"), b"", gzip.compress(BODY)])
def test_a_body_tampered_with_breaks_the_signature(crawler: Crawler, conn: Connection, body: bytes) -> None:
    answer = crawler.send("POST", CHAPTERS, body, crawler.headers("POST", CHAPTERS, BODY))
    assert refusal(answer) == INVALID_SIGNATURE
    assert written(conn) == {}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", CHAPTERS),
        ("PUT", CHAPTERS),
        ("POST", STORIES),
        ("POST", CHAPTERS + "/"),
        ("POST", CHAPTERS + "?a=b"),
        ("POST", CHAPTERS.upper()),
        ("POST", f"http://{HOST}{CHAPTERS}"),
        ("POST", "/novel/v1/ingest/chapters/bulk"),
    ],
)
def test_a_signature_for_another_method_or_path_is_refused(
    crawler: Crawler, conn: Connection, method: str, path: str
) -> None:
    assert refusal(crawler.send("POST", CHAPTERS, BODY, crawler.headers(method, path, BODY))) == INVALID_SIGNATURE
    assert written(conn) == {}


def test_a_query_is_no_part_of_the_path(crawler: Crawler) -> None:
    answer = crawler.send("POST", CHAPTERS + "?trace=1", BODY, crawler.headers("POST", CHAPTERS, BODY))
    assert answer.status == 202


def test_the_body_is_signed_as_it_is_sent(crawler: Crawler, conn: Connection) -> None:
    packed = gzip.compress(BODY)
    of_the_inner = crawler.headers("POST", CHAPTERS, BODY) | {"Content-Encoding": "gzip"}
    assert refusal(crawler.send("POST", CHAPTERS, packed, of_the_inner)) == INVALID_SIGNATURE
    assert written(conn) == {}
    assert crawler.post(CHAPTERS, packed, Content_Encoding="gzip").status == 202


def test_the_secret_of_another_key_signs_nothing_for_this_one(
    crawler: Crawler, make_crawler: MakeCrawler, conn: Connection
) -> None:
    thief = Crawler(crawler.port, crawler.key_id, make_crawler().secret)
    assert refusal(thief.post(CHAPTERS, BODY)) == INVALID_SIGNATURE
    assert written(conn) == {}
