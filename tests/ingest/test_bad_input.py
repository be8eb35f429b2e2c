"""Bad input at a real server: an answer that says why, never a 5xx, never a traceback, never a half-written batch."""

import base64
import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from schema.connection import Connection
from tests.ingest.bombs import MIB, gzip_bomb, zstd_bomb
from tests.ingest.client import CHAPTERS, STORIES, Crawler, batch, chapter, story
from tests.ingest.conftest import ServeWith, written
from tests.processes import Answer, Served

REBUILD_STATS = "/wp-json/novel/v1/ingest/rebuild-stats"
MAX_CHAPTERS_BYTES = 12 * MIB
GOOD = batch(chapter())


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with()


@pytest.fixture(autouse=True)
def goes_on(served: Served) -> Iterator[None]:
    """Whatever came, the server has no more to say about it than a line, and answers the next."""
    yield
    assert "Traceback" not in served.said()
    assert served.get("/healthz").status == 200


def assert_refused(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The one error body, in both of its shapes."""
    said: dict[str, Any] = answer.json()
    assert (answer.status, said["code"]) == (status, code), answer.body[:500]
    assert said["error"]["code"] == said["code"]
    assert said["error"]["message"] == said["message"]
    assert said["message"].endswith(".")
    assert said["data"] == {"status": status}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    return said


def zstd(raw: bytes, *, says_size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(level=1, write_content_size=says_size).compress(raw)


ENCODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("identity", bytes),
    ("gzip", lambda raw: gzip.compress(raw, 1)),
    ("zstd", zstd),
    ("zstd", lambda raw: zstd(raw, says_size=False)),
]


def padded(size: int) -> bytes:
    """A batch of that many bytes, of 46 chapters that hardly compress."""
    noise = base64.b64encode(random.Random(1).randbytes(192 << 10)).decode()
    raw = batch(*(chapter(number, content_raw=noise[number:]) for number in range(46)))
    return raw[:-1] + b" " * (size - len(raw)) + b"}"


NOT_JSON = {
    "empty": b"",
    "blank": b" \n",
    "form": b"source=a&items=1",
    "truncated": GOOD[:-5],
    "truncated in a string": GOOD[: GOOD.index(b"content_raw") + 20],
    "two bodies": GOOD + GOOD,
    "trailing comma": GOOD[:-2] + b",]}",
    "NaN": GOOD.replace(b'"chapter_no": 1', b'"chapter_no": NaN'),
    "Infinity": GOOD.replace(b'"chapter_no": 1', b'"chapter_no": -Infinity'),
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-32": GOOD.decode().encode("utf-32-be"),
    "byte order mark": GOOD.decode().encode("utf-8-sig"),
    "bytes": bytes(range(256)) * 100,
    "name in Latin-1": GOOD.replace(b'"items"', b'"it\xe9ms"'),
    "compressed, unsaid": gzip.compress(GOOD),
    "nested lists": GOOD[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "nested in an item": batch(chapter(x="HERE")).replace(b'"HERE"', b"[" * 100_000 + b"]" * 100_000),
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_json_is_refused(crawler: Crawler, conn: Connection, body: bytes) -> None:
    for path in (STORIES, CHAPTERS):
        assert_refused(crawler.post(path, body), 400, "invalid_schema")
    assert written(conn) == {}


NOT_A_BATCH = {
    "array": b"[]",
    "half open arrays": b"[" * 100_000,
    "array of items": b"[" + json.dumps(chapter()).encode() + b"]",
    "string": b'"a"',
    "number": b"1",
    "huge number": b"1" + b"0" * 100_000,
    "null": b"null",
    "object": b"{}",
    "no items": batch(),
    "301 items": batch(*map(chapter, range(301))),
    "6 million numbers": b'{"source": "a", "items": [' + b"1," * (6 * 10**6) + b"1]}",
    "items as object": b'{"source": "a", "items": {"0": {}}}',
    "no source": json.dumps({"items": [chapter()]}).encode(),
    "source as number": batch(chapter()).replace(b'"truyen-a"', b"5"),
    "source too long": batch(chapter(), source="\u0958" * 40),
    "half a pair in the source": GOOD.replace(b"truyen-a", rb"\ud800"),
}


@pytest.mark.parametrize("body", NOT_A_BATCH.values(), ids=NOT_A_BATCH.keys())
def test_what_is_not_a_batch_is_refused(crawler: Crawler, conn: Connection, body: bytes) -> None:
    assert_refused(crawler.post(CHAPTERS, body), 422, "invalid_schema")
    if len(body) < 5 * MIB:
        assert_refused(crawler.post(STORIES, body), 422, "invalid_schema")
    assert written(conn) == {}


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b'{"story_ids": []}', b'{"story_ids": 1}', b'{"story_ids": ["1"]}', b'{"story_ids": [1.5]}'),
        *(b'{"story_ids": [0]}', b'{"story_ids": [-1]}', b'{"story_ids": [18446744073709551616]}', b"[1]"),
        *(b'{"story_ids": [true]}', b'{"story_ids": [1e999]}', b'{"story_ids": [[[]]]}', b'{"story_ids": ["\xff"]}'),
        json.dumps({"story_ids": list(range(1, 10_002))}).encode(),
    ],
)
def test_what_is_no_list_of_stories_is_not_recounted(crawler: Crawler, conn: Connection, body: bytes) -> None:
    assert_refused(crawler.post(REBUILD_STATS, body), 422, "invalid_schema")
    assert_refused(crawler.post(REBUILD_STATS, body[:-1]), 422 if body == b"[1]" else 400, "invalid_schema")
    assert written(conn) == {}


def test_of_a_name_that_comes_twice_the_last_counts(crawler: Crawler, conn: Connection) -> None:
    twice = GOOD.replace(b'"source": "truyen-a"', b'"source": 1, "source": "truyen-b", "source": "truyen-a"')
    twice = twice.replace(b'"chapter_no": 1', b'"chapter_no": "x", "chapter_no": 7')
    assert crawler.post(CHAPTERS, twice).status == 202
    assert conn.fetch_all("SELECT source FROM wp_novel_ingest_jobs") == [("truyen-a",)]


def test_valid_items_are_queued_and_invalid_ones_named(crawler: Crawler, conn: Connection) -> None:
    answer = crawler.push(chapter(1), chapter(2, slug="X"), chapter(3), chapter(4, chapter_no="4"), chapter(5))
    assert answer.status == 200
    said = answer.json()
    assert (said["accepted_count"], said["rejected_count"]) == (3, 2)
    assert [(error["index"], error["code"]) for error in said["errors"]] == [(1, "invalid_slug"), (3, "invalid_type")]
    assert "slug" in said["errors"][0]["message"]
    assert conn.fetch_all("SELECT item_index FROM wp_novel_ingest_jobs ORDER BY item_index") == [(0,), (2,), (4,)]
    assert conn.fetch_all("SELECT total_items, accepted_items, rejected_items FROM wp_novel_ingest_requests") == [
        (5, 3, 2)
    ]


def test_a_batch_of_which_nothing_is_acceptable_leaves_nothing(crawler: Crawler, conn: Connection) -> None:
    sent = crawler.headers("POST", CHAPTERS, batch(5, chapter(title="")))
    answer = crawler.send("POST", CHAPTERS, batch(5, chapter(title="")), sent)
    said = assert_refused(answer, 422, "invalid_schema")
    assert said["request_id"] == sent["X-Novel-Request-Id"]
    assert (said["accepted_count"], said["rejected_count"]) == (0, 2)
    assert [error["code"] for error in said["errors"]] == ["invalid_type", "empty"]
    assert said["error"]["details"] == said["errors"]
    assert written(conn) == {}


def test_one_item_that_is_not_text_spoils_itself_alone(crawler: Crawler, conn: Connection) -> None:
    for spoilt in (rb"\ud800", b"\xff", b"\xed\xa0\x80", rb"\u0000", b"a" + "\u0300\u0316".encode() * 60_000):
        body = batch(chapter(1), chapter(2, title="HERE"), chapter(3)).replace(b"HERE", spoilt)
        answer = crawler.post(CHAPTERS, body)
        assert answer.status == 200, answer.body
        assert [error["index"] for error in answer.json()["errors"]] == [1]
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_jobs") == [(10,)]


def test_names_that_grow_when_they_are_composed_still_fit_their_columns(crawler: Crawler, conn: Connection) -> None:
    letter = "\u0958"  # two in NFC
    answer = crawler.push(story(1, source_story_id=letter * 191), story(2, source_story_id=letter * 95), path=STORIES)
    assert answer.status == 200, answer.body
    assert [error["code"] for error in answer.json()["errors"]] == ["too_long"]
    answer = crawler.push(chapter(1, source_story_id=letter * 95, source_chapter_id=letter * 95), source=letter * 20)
    assert answer.status == 202, answer.body


def test_an_item_as_deep_as_the_server_can_just_read_is_taken_or_refused(crawler: Crawler) -> None:
    statuses = set()
    for depth in (*range(800, 1000, 4), 1500, 5000):
        body = batch(chapter(1), chapter(2, x="HERE")).replace(b'"HERE"', b"[" * depth + b"]" * depth)
        for more in (b"", b" " * 20_000):  # small ones are read on the event loop, others in a thread
            statuses.add(crawler.post(CHAPTERS, body + more).status)
    assert statuses <= {200, 202, 400}
    assert 400 in statuses


NOT_AS_IT_SAYS = {
    "empty gzip": (b"", "gzip"),
    "empty zstd": (b"", "zstd"),
    "plain as gzip": (GOOD, "gzip"),
    "plain as zstd": (GOOD, "zstd"),
    "gzip as zstd": (gzip.compress(GOOD), "zstd"),
    "zstd as gzip": (zstd(GOOD), "gzip"),
    "truncated gzip": (gzip.compress(GOOD)[:-9], "gzip"),
    "truncated zstd": (zstd(GOOD)[:-9], "zstd"),
    "truncated zstd without size": (zstd(GOOD, says_size=False)[:-9], "zstd"),
    "garbage after gzip": (gzip.compress(GOOD) + b"garbage", "gzip"),
    "garbage after zstd": (zstd(GOOD) + b"garbage", "zstd"),
    "garbage after zstd without size": (zstd(GOOD, says_size=False) + b"garbage", "zstd"),
    "gzip in gzip": (gzip.compress(gzip.compress(GOOD)), "gzip"),
    "bomb in gzip": (gzip.compress(gzip_bomb(9 * MIB)), "gzip"),
    "many members": (gzip.compress(b"", mtime=0) * 100_000, "gzip"),
    "zstd that lies": (zstd_bomb(10 << 30, says_size=True, said=999), "zstd"),
}


@pytest.mark.parametrize(("body", "encoding"), NOT_AS_IT_SAYS.values(), ids=NOT_AS_IT_SAYS.keys())
def test_what_is_not_compressed_as_it_says_is_refused(
    crawler: Crawler, conn: Connection, body: bytes, encoding: str
) -> None:
    assert_refused(crawler.post(CHAPTERS, body, Content_Encoding=encoding), 400, "invalid_schema")
    assert written(conn) == {}


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "none", "x" * 5000])
def test_an_unknown_encoding_is_refused(crawler: Crawler, conn: Connection, encoding: str) -> None:
    assert_refused(crawler.post(CHAPTERS, GOOD, Content_Encoding=encoding), 415, "unsupported_encoding")
    assert written(conn) == {}


@pytest.mark.parametrize(
    ("bomb", "encoding"),
    [
        (gzip_bomb(10 << 30), "gzip"),
        (zstd_bomb(10 << 30, says_size=True), "zstd"),
        (zstd_bomb(10 << 30, says_size=False), "zstd"),
    ],
    ids=["gzip", "zstd", "zstd without size"],
)
def test_a_bomb_of_10_gb_costs_no_more_than_an_honest_batch(
    crawler: Crawler, served: Served, conn: Connection, bomb: bytes, encoding: str
) -> None:
    assert crawler.post(CHAPTERS, zstd(padded(MAX_CHAPTERS_BYTES)), Content_Encoding="zstd").status == 202
    before, peak = written(conn), peak_bytes(served)
    assert_refused(crawler.post(CHAPTERS, bomb, Content_Encoding=encoding), 413, "payload_too_large")
    assert written(conn) == before
    assert peak_bytes(served) - peak < 64 * MIB


def test_a_batch_of_the_largest_size_is_taken_and_a_larger_one_is_not(crawler: Crawler, conn: Connection) -> None:
    for name, encode in ENCODERS:
        too_large = encode(padded(MAX_CHAPTERS_BYTES + 1))
        assert_refused(crawler.post(CHAPTERS, too_large, Content_Encoding=name), 413, "payload_too_large")
    assert written(conn) == {}
    for name, encode in ENCODERS:
        answer = crawler.post(CHAPTERS, encode(padded(MAX_CHAPTERS_BYTES)), Content_Encoding=name)
        assert (answer.status, answer.json()["accepted_count"]) == (202, 46)


def test_300_items_of_256_kb_are_too_much_however_they_are_compressed(crawler: Crawler, conn: Connection) -> None:
    text = "ấ" * 87381
    for make, path in ((chapter, CHAPTERS), (lambda number, content_raw: story(number, summary=content_raw), STORIES)):
        body = batch(*(make(number, content_raw=text) for number in range(300)))
        for packed, encoding in ((gzip.compress(body, 1), "gzip"), (zstd(body), "zstd")):
            assert len(packed) < 5 * MIB
            assert_refused(crawler.post(path, packed, Content_Encoding=encoding), 413, "payload_too_large")
        assert_refused(crawler.post(path, body[: 13 * MIB]), 413, "payload_too_large")
    assert written(conn) == {}


@pytest.mark.parametrize(
    "items",
    [
        b"[" + b"1," * (6 * 10**6) + b"1]",
        b"[" + b"{}," * (4 * 10**6) + b"{}]",
        b"[{" + b",".join(b'"%d":0' % number for number in range(10**6)) + b"}]",
        b'[{"chapter_no": [' + b"1," * (6 * 10**6) + b"1]}]",
        b'[{"title": "' + b"\\u0041" * (2 * 10**6) + b'"}]',
    ],
    ids=["numbers", "objects", "names", "numbers in a field", "escapes"],
)
def test_millions_of_values_cost_the_server_little_memory(
    crawler: Crawler, served: Served, conn: Connection, items: bytes
) -> None:
    assert crawler.post(CHAPTERS, padded(MAX_CHAPTERS_BYTES)).status == 202
    before, peak = written(conn), peak_bytes(served)
    answer = crawler.post(CHAPTERS, b'{"source": "a", "items": ' + items + b"}")
    assert_refused(answer, 422, "invalid_schema")
    assert written(conn) == before
    assert peak_bytes(served) - peak < 64 * MIB


@pytest.mark.parametrize(
    "path", ["/requests/x", "/requests/%00", "/requests/%ff%fe", "/requests/..%2f..", "/requests//items"]
)
def test_a_request_that_cannot_be_is_not_found(crawler: Crawler, path: str) -> None:
    answer = crawler.get(f"/wp-json/novel/v1/ingest{path}")
    # The path is signed as it is written; the server signs what it reads of it.
    assert answer.status in (401, 404)
    assert_refused(answer, answer.status, answer.json()["code"])


def peak_bytes(served: Served) -> int:
    """The most memory that the server ever had."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10
