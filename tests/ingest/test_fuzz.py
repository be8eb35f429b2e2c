"""Whatever is sent: never an exception of ours, never a 5xx, and every item is either queued or refused, once."""

import copy
import http.client
import json
import socket
import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ingest import chapters, stories
from ingest.batch import Checked, Kind
from runtime.errors import ApiError
from schema.connection import Connection
from store import bodies, payloads
from store.payloads import StoryFrame
from tests.ingest.checked import CHAPTER, STORY, check_body
from tests.ingest.client import CHAPTERS, STORIES, Crawler, chapter, story
from tests.ingest.conftest import MakeCrawler, ServeWith, assert_nothing_is_half_written
from tests.processes import ANSWER_SECONDS, HOST, Served

LONGEST = {"source_story_id": 191, "slug": 191, "title": 255, "title_original": 255, "author_name": 191}
NAMES = sorted({*stories.ITEM.names, *chapters.ITEM.names, "source", "items"})

fuzzed = settings(derandomize=True, deadline=None, max_examples=600)
fuzzed_over_http = settings(
    derandomize=True,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Half pairs of surrogates included: JSON can say them.
_TEXTS = st.one_of(
    st.text(st.characters(), max_size=20),
    st.text("a\u0301\u0323\u0958đ😀 \n\0\x7f", max_size=300),
    st.sampled_from(
        ["", " ", "a" * 191, "a" * 192, "\ud800", "\u0958" * 191, "2026-02-21T08:00:00Z", "9999-12-31T23:59:59-01:00"]
    ),
    st.datetimes().map(lambda time: time.isoformat() + "+07:00"),
)
_NUMBERS = st.one_of(
    st.integers(-3, 5),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-0.0, 0.07, 1.005, 99_999_999.99, 99_999_999.995, 10**400, 2**63, 2**64]),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS | st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def batches(draw: st.DrawFn, make: Callable[[int], dict[str, Any]]) -> bytes:
    """A valid batch with some of it replaced, removed, doubled or added to."""
    items: list[Any] = [make(draw(st.integers(0, 3))) for _ in range(draw(st.integers(0, 5)))]
    whole: Any = {"source": "truyen-a", "items": items}
    for _ in range(draw(st.integers(0, 6))):
        target = draw(st.sampled_from([whole, *(item for item in items if isinstance(item, dict))]))
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "double", "item"])):
            case "replace":
                target[draw(st.sampled_from(NAMES) | _TEXTS)] = draw(_VALUES)
            case "remove":
                target.pop(draw(st.sampled_from(NAMES)), None)
            case "double" if items:
                items.insert(draw(st.integers(0, len(items))), copy.deepcopy(draw(st.sampled_from(items))))
            case "item":
                items.append(draw(_VALUES))
    raw = json.dumps(whole, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    return draw(damaged(raw)) if draw(st.integers(0, 9)) == 0 else raw


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """With some bytes changed, cut out or put in."""
    broken = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(broken)))
        last = min(len(broken), first + draw(st.integers(0, 5)))
        broken[first:last] = draw(st.binary(max_size=5) | st.sampled_from([rb"\ud800", rb"\u", b'"', b"[", b"{", b"}"]))
    return bytes(broken)


def assert_consistent(checked: Checked) -> None:
    accepted = [item for blob, _ in checked.blobs for item in blob.items]
    assert checked.accepted == len(accepted)
    # Each item of the batch is either accepted or refused, and none is both.
    assert sorted([item.index for item in accepted] + [error.index for error in checked.errors]) == list(
        range(checked.total)
    )
    assert len({item.external_ref for item in accepted}) == len(accepted)
    for item in accepted:
        assert 1 <= len(item.external_ref) <= 191
        frame = payloads.decode(item.frame)
        for name, longest in LONGEST.items():
            text = getattr(frame, name, None) or ""
            assert len(text) <= longest
            assert unicodedata.is_normalized("NFC", text)
            assert "\0" not in text
            text.encode()
        if not isinstance(frame, StoryFrame) and frame.content is not None:
            raw = bodies.decompress(frame.content.stored, frame.content.encoding)
            assert 1 <= len(raw) == frame.content.size <= 262144
            assert unicodedata.is_normalized("NFC", raw.decode())
    for error in checked.errors:
        assert error.code
        assert error.message.endswith(".")
        (error.code + error.message).encode()


def try_to_check(raw: bytes, kind: Kind) -> None:
    try:
        checked = check_body(raw, kind)
    except ApiError as error:
        assert error.status in (400, 422)  # noqa: PT017
        error.message.encode()
    else:
        assert_consistent(checked)


@fuzzed
@given(batches(story))
def test_any_batch_of_stories_is_taken_apart_without_an_exception(raw: bytes) -> None:
    try_to_check(raw, STORY)


@fuzzed
@given(batches(chapter))
def test_any_batch_of_chapters_is_taken_apart_without_an_exception(raw: bytes) -> None:
    try_to_check(raw, CHAPTER)


@fuzzed
@given(st.binary(max_size=300))
def test_any_bytes_are_a_batch_or_refused(raw: bytes) -> None:
    try_to_check(raw, STORY)


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with(NOVEL_INGEST_LOCK_FAILURES="1000000")


@pytest.fixture
def crawler(make_crawler: MakeCrawler) -> Crawler:
    return make_crawler()


@fuzzed_over_http
@given(
    st.one_of(batches(story), batches(chapter), st.binary(max_size=200)),
    st.sampled_from([STORIES, CHAPTERS, "/wp-json/novel/v1/ingest/rebuild-stats"]),
    st.sampled_from(["identity", "identity", "gzip", "zstd"]),
    st.booleans(),
)
def test_no_body_is_a_failure_of_the_server(
    served: Served, crawler: Crawler, conn: Connection, raw: bytes, path: str, encoding: str, compressed: bool
) -> None:
    body = bodies.compress(raw, "none" if encoding == "identity" else encoding) if compressed else raw
    answer = crawler.post(path, body, Content_Encoding=encoding)
    assert answer.status in (200, 202, 400, 413, 422), answer.body
    said = answer.json()
    assert "accepted_count" in said or said["error"]["code"] == said["code"]
    assert "Traceback" not in served.said()
    assert_nothing_is_half_written(conn)


_VALUE_OF_A_HEADER = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=140
)


@fuzzed_over_http
@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("X-Novel-Key-Id", "X-Novel-Timestamp", "X-Novel-Nonce", "X-Novel-Signature", "X-Novel-Request-Id"),
                *(
                    "Idempotency-Key",
                    "Content-Encoding",
                    "Content-Type",
                    "X-Request-Id",
                    "X-Forwarded-For",
                    "Forwarded",
                ),
            ]
        ),
        st.one_of(_VALUE_OF_A_HEADER, st.integers(0, 10**13).map(str), st.uuids().map(str)),
        max_size=3,
    )
)
@example({"X-Novel-Timestamp": "²"})
@example({"X-Novel-Timestamp": "9" * 12})
@example({"X-Novel-Nonce": "é" * 128})
@example({"Idempotency-Key": "a" * 120})
def test_no_header_is_a_failure_of_the_server(served: Served, crawler: Crawler, headers: dict[str, str]) -> None:
    body = json.dumps({"source": "a", "items": [chapter()]}).encode()
    sent = crawler.headers("POST", CHAPTERS, body)
    kept = {name: value for name, value in sent.items() if name not in headers}
    answer = crawler.send("POST", CHAPTERS, body, kept | headers)
    assert 200 <= answer.status < 500, (answer.status, answer.body)
    assert answer.json()
    assert "Traceback" not in served.said()


@fuzzed_over_http
@given(st.binary(max_size=400))
@example(b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n")
@example(b"POST /wp-json/novel/v1/ingest/stories/bulk HTTP/1.1\r\nX-Novel-Nonce: \xff\xfe\r\nContent-Length: 0\r\n\r\n")
@example(b"GET /wp-json/novel/v1/ingest/requests/%00%ff HTTP/1.1\r\n\r\n")
def test_no_bytes_are_a_failure_of_the_server(served: Served, raw: bytes) -> None:
    with served.connect() as connection:
        connection.sendall(raw + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        status = connection.recv(12)
    assert not status.startswith(b"HTTP/1.1 5"), status
    assert "Traceback" not in served.said()


@fuzzed_over_http
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_no_address_is_a_failure_of_the_server(served: Served, crawler: Crawler, name: str, query: str) -> None:
    path = f"/wp-json/novel/v1/ingest/requests/{name}"
    connection = http.client.HTTPConnection(HOST, served.port, timeout=ANSWER_SECONDS)
    target = f"{quote(path)}?limit={quote(query)}&cursor={quote(query)}"
    connection.request("GET", target, headers=crawler.headers("GET", path))
    status = connection.getresponse().status
    connection.close()
    assert status < 500
    assert "Traceback" not in served.said()
