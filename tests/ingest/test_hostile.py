"""What an attacker would try: each costs no more than an honest batch, and keeps nobody else out."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard

from ingest import text
from ingest.routes import REBUILD_STATS
from schema.connection import Connection
from tests.conftest import ROOT, DatabaseServer
from tests.ingest.client import CHAPTERS, STORIES, Crawler, batch, chapter, refusal, story
from tests.ingest.conftest import MakeCrawler, ServeWith, written
from tests.processes import Served, wait_for


@pytest.mark.parametrize("mark", ["\u0f73", "\u0f75", "\u0f81", "\u0323\u0301"])
def test_a_pile_of_marks_is_refused_without_sorting_it(mark: str) -> None:
    """In a process of its own: what takes the square of a hundred thousand steps holds the interpreter for minutes."""
    program = (
        "from ingest import text\n"
        f"try: text.normalised('a' + {mark!a} * 100_000)\n"
        "except text.NotText as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
    )
    assert "combining marks" in done.stdout


def test_marks_that_people_use_are_kept() -> None:
    assert text.normalised("a" + "\u0323\u0302") == "ậ"
    assert text.normalised("ག" + "\u0f73") != ""


@contextlib.contextmanager
def strangers(served: Served, number: int, *, declared: int) -> Iterator[None]:
    """So many who have no key, and each hold all but the last byte of a body."""
    sockets = []
    body = b"x" * (declared - 1)
    head = Crawler(served.port, "nobody", "x").headers("POST", CHAPTERS, body) | {"Host": "h"}
    head |= {"Content-Length": str(declared)}
    request = f"POST {CHAPTERS} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items()) + "\r\n"
    for _ in range(number):
        found = socket.create_connection(("127.0.0.1", served.port), timeout=30)
        found.sendall(request.encode())
        sockets.append(found)
    threads = [threading.Thread(target=_send, args=(found, body), daemon=True) for found in sockets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for found in sockets:
            found.close()
        for thread in threads:
            thread.join(30)


def _send(found: socket.socket, body: bytes) -> None:
    with contextlib.suppress(OSError):
        found.sendall(body)


def test_strangers_who_never_finish_keep_no_crawler_out(
    make_crawler: MakeCrawler, served: Served, conn: Connection
) -> None:
    crawler = make_crawler()
    large = [chapter(n, content_raw="ấ" * 80_000) for n in range(40)]
    with strangers(served, 20, declared=12 << 20):
        assert crawler.push(chapter(1)).status == 202
        crawler.address = "127.0.0.2"  # theirs is full
        assert crawler.push(*large).status == 202
    crawler.address = "127.0.0.1"
    assert crawler.push(*large).status == 202


def test_a_body_that_trickles_in_is_given_up(serve_with: ServeWith) -> None:
    served = serve_with(NOVEL_INGEST_BODY_SECONDS="1")
    crawler = Crawler(served.port, "nobody", "x")
    head = crawler.headers("POST", CHAPTERS, b"") | {"Host": "h", "Content-Length": "1000000"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as found:
        found.sendall(f"POST {CHAPTERS} HTTP/1.1\r\n{lines}\r\n".encode() + b"x" * 100)
        assert found.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_body_of_one_byte_chunks_is_taken(make_crawler: MakeCrawler, served: Served) -> None:
    """How many pieces it is handed on in is in tests/runtime/test_http_protocol.py."""
    crawler = make_crawler()
    body = batch(chapter(1, content_raw="a" * 200_000))
    head = crawler.headers("POST", CHAPTERS, body) | {"Host": "h", "Transfer-Encoding": "chunked"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as found:
        found.sendall(f"POST {CHAPTERS} HTTP/1.1\r\n{lines}\r\n".encode())
        found.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert found.recv(100).startswith(b"HTTP/1.1 202 ")


def test_a_question_with_a_large_body_is_refused_unread(crawler: Crawler) -> None:
    request_id = crawler.push(chapter(1)).json()["request_id"]
    path = f"/wp-json/novel/v1/ingest/requests/{request_id}"
    body = b"x" * 2000
    assert refusal(crawler.send("GET", path, body, crawler.headers("GET", path, body))) == (413, "payload_too_large")


def test_what_small_bodies_expand_to_is_bounded_too(make_crawler: MakeCrawler, serve_with: ServeWith) -> None:
    """Twenty bodies of a few kilobytes that become twelve megabytes each, at once: they take turns."""
    served = serve_with(NOVEL_INGEST_BUFFER_BYTES=str(48 << 20))
    key = make_crawler()
    crawler = Crawler(served.port, key.key_id, key.secret)
    bodies = [
        batch(*(chapter(n, source_story_id=f"s{number}", content_raw="a" * 250_000) for n in range(48)))
        for number in range(12)
    ]
    compressed = [zstandard.ZstdCompressor(level=1).compress(body) for body in bodies]
    assert max(map(len, compressed)) < 100_000

    def push(body: bytes) -> int:
        return crawler.post(CHAPTERS, body, Content_Encoding="zstd").status

    assert push(compressed[0]) == 202
    before = _peak_bytes(served)
    with ThreadPoolExecutor(11) as threads:
        assert set(threads.map(push, compressed[1:])) == {202}
    # All of them at once would be 130 MB of bodies alone.
    assert _peak_bytes(served) - before < 110 << 20


def _peak_bytes(served: Served) -> int:
    status = Path(f"/proc/{served.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def test_a_hundred_large_identical_posts_at_once_all_get_the_same_answer(crawler: Crawler, conn: Connection) -> None:
    body = batch(*(chapter(n, content_raw="Một câu chuyện dài. " * 400) for n in range(200)))
    assert len(body) > 1 << 20
    heads = [crawler.headers("POST", CHAPTERS, body) | {"Idempotency-Key": "k"} for _ in range(100)]
    with ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(lambda head: crawler.send("POST", CHAPTERS, body, head), heads))
    assert {(answer.status, answer.body) for answer in answers} == {(202, answers[0].body)}
    assert written(conn)["ingest_jobs"] == 200


@pytest.mark.parametrize("count", [101, 500_000])
def test_a_list_of_too_many_entries_is_refused_by_its_number(crawler: Crawler, count: int) -> None:
    answer = crawler.post(STORIES, batch(story(1, aliases=["a"] * count), story(2)))
    assert answer.status == 200
    assert answer.json()["errors"] == [
        {"index": 0, "code": "too_many", "message": "aliases has more than 100 entries."}
    ]


def test_ten_thousand_unknown_stories_are_named_in_an_answer_of_both_shapes(crawler: Crawler) -> None:
    answer = crawler.post(REBUILD_STATS, json.dumps({"story_ids": list(range(1, 10_001))}).encode())
    assert answer.status == 422
    shown = answer.json()
    assert (shown["rejected_count"], len(shown["errors"])) == (10_000, 10_000)
    assert (shown["code"], len(shown["error"]["details"])) == ("invalid_schema", 300)


def test_a_batch_is_answered_though_its_key_is_being_changed(
    crawler: Crawler, conn: Connection, served: Served, database_server: DatabaseServer
) -> None:
    """Noting when a key was used waits for nobody, and fails nobody."""
    with conn.transaction():
        conn.fetch_all("SELECT id FROM wp_novel_api_keys WHERE key_id = %s FOR UPDATE", (crawler.key_id,))
        assert crawler.push(chapter(1)).status == 202
    wait_for(lambda: conn.fetch_all("SELECT 1 FROM wp_novel_api_keys WHERE last_used_at IS NOT NULL"))


def test_a_read_only_database_is_unavailable_not_broken(
    crawler: Crawler, served: Served, database_server: DatabaseServer, conn: Connection
) -> None:
    root = database_server.as_root()
    with root.cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = 1")
        try:
            answer = crawler.push(chapter(1))
        finally:
            cursor.execute("SET GLOBAL read_only = 0")
    root.close()
    assert refusal(answer) == (503, "unavailable")
    assert "Traceback" not in served.said()
    assert crawler.push(chapter(1)).status == 202
