"""Nothing that got a 2xx is lost, and nothing is doubled: whoever asks twice, whatever dies in between."""

import gzip
import http.client
import json
import random
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.from_thread
import pytest

from runtime.addresses import parse_database
from schema.connection import Connection
from tests.ingest.client import CHAPTERS, STORIES, Crawler, batch, chapter, story
from tests.ingest.conftest import MakeCrawler, MakeKey
from tests.ingest.forked import Forked, listening
from tests.processes import Answer, Served, serving, wait_for
from tests.store.wire import Wire

# As the protocol has it: a new connection's SET AUTOCOMMIT is another thing.
COMMIT = b"\x03COMMIT"
KILLS = 100
PUSHERS = 6


def counts(conn: Connection) -> dict[str, int]:
    """How many rows each table of the queue has."""
    tables = ("ingest_requests", "ingest_jobs", "ingest_payload_blobs", "ingest_ready")
    return {table: conn.fetch_all(f"SELECT COUNT(*) FROM wp_novel_{table}")[0][0] for table in tables}


def queue_of(requests: int, items: int) -> dict[str, int]:
    return {
        "ingest_requests": requests,
        "ingest_jobs": items,
        "ingest_payload_blobs": requests,
        "ingest_ready": requests,
    }


def test_the_same_batch_again_gets_the_same_answer_and_changes_nothing(crawler: Crawler, conn: Connection) -> None:
    body = batch(chapter(1), chapter(2, slug="X"), {"nonsense": 1})
    first = crawler.post(CHAPTERS, body, Idempotency_Key="k1")
    assert first.status == 200
    again = crawler.post(CHAPTERS, body, Idempotency_Key="k1")  # with a request id and a nonce of its own
    assert (again.status, again.body) == (first.status, first.body)
    assert counts(conn) == queue_of(1, 1)


def test_a_byte_identical_retry_gets_its_answer_though_its_nonce_was_seen(crawler: Crawler, conn: Connection) -> None:
    body = batch(chapter(1))
    headers = crawler.headers("POST", CHAPTERS, body)
    first = crawler.send("POST", CHAPTERS, body, headers)
    again = crawler.send("POST", CHAPTERS, body, headers)
    assert (first.status, again.status) == (202, 202)
    assert again.body == first.body
    assert counts(conn) == queue_of(1, 1)


def test_the_same_payload_compressed_otherwise_is_the_same_batch(crawler: Crawler, conn: Connection) -> None:
    body = batch(chapter(1))
    first = crawler.post(CHAPTERS, body, Idempotency_Key="k1")
    again = crawler.post(CHAPTERS, gzip.compress(body), Idempotency_Key="k1", Content_Encoding="gzip")
    assert (again.status, again.body) == (first.status, first.body)
    assert counts(conn) == queue_of(1, 1)


def test_a_key_used_for_another_payload_is_a_conflict(crawler: Crawler, conn: Connection) -> None:
    assert crawler.push(chapter(1), Idempotency_Key="k1").status == 202
    answer = crawler.push(chapter(2), Idempotency_Key="k1")
    assert (answer.status, answer.json()["code"]) == (409, "idempotency_conflict")
    assert counts(conn) == queue_of(1, 1)


def test_a_key_belongs_to_its_source_and_its_kind(crawler: Crawler, conn: Connection) -> None:
    assert crawler.push(chapter(1), Idempotency_Key="k1").status == 202
    assert crawler.push(chapter(1), source="another", Idempotency_Key="k1").status == 202
    assert crawler.push(story(1), path=STORIES, Idempotency_Key="k1").status == 202
    assert counts(conn) == queue_of(3, 3)


@pytest.mark.parametrize("other", ["body", "key", "body and key", "API key", "source", "route"])
def test_a_request_id_used_before_is_a_conflict(make_crawler: MakeCrawler, conn: Connection, other: str) -> None:
    crawler, stranger = make_crawler(), make_crawler()
    request_id = str(uuid.uuid4())
    assert crawler.push(chapter(1), X_Novel_Request_Id=request_id, Idempotency_Key="k1").status == 202
    answer = (stranger if other == "API key" else crawler).push(
        story(1) if other == "route" else chapter(2 if "body" in other else 1),
        path=STORIES if other == "route" else CHAPTERS,
        source="another" if other == "source" else "truyen-a",
        X_Novel_Request_Id=request_id,
        Idempotency_Key="k1" if other in ("body", "source", "route") else "k2",
    )
    assert (answer.status, answer.json()["code"]) == (409, "idempotency_conflict")
    assert counts(conn) == queue_of(1, 1)


def test_the_very_same_request_is_a_retry_also_after_the_retention(crawler: Crawler, conn: Connection) -> None:
    request_id = str(uuid.uuid4())
    first = crawler.push(chapter(1), X_Novel_Request_Id=request_id, Idempotency_Key="k1")
    conn.execute("UPDATE wp_novel_ingest_requests SET created_at = created_at - INTERVAL 73 HOUR")
    again = crawler.push(chapter(1), X_Novel_Request_Id=request_id, Idempotency_Key="k1")
    assert (again.status, again.body) == (202, first.body)
    assert counts(conn) == queue_of(1, 1)


def test_a_key_may_be_used_anew_when_its_retention_has_ended(crawler: Crawler, conn: Connection) -> None:
    first = crawler.push(chapter(1), Idempotency_Key="k1")
    conn.execute("UPDATE wp_novel_ingest_requests SET created_at = created_at - INTERVAL 71 HOUR")
    assert crawler.push(chapter(2), Idempotency_Key="k1").status == 409
    conn.execute("UPDATE wp_novel_ingest_requests SET created_at = created_at - INTERVAL 2 HOUR")
    assert crawler.push(chapter(2), Idempotency_Key="k1").status == 202
    assert counts(conn) == queue_of(2, 2)
    state = crawler.get(f"/wp-json/novel/v1/ingest/requests/{first.json()['request_id']}")
    assert state.status == 200  # the old request can still be looked at


def test_a_retry_under_another_key_gets_the_first_answer(make_crawler: MakeCrawler, conn: Connection) -> None:
    """As after a rotation, in the middle of a retry."""
    one, other = make_crawler(), make_crawler()
    first = one.push(chapter(1), Idempotency_Key="k1")
    again = other.push(chapter(1), Idempotency_Key="k1")
    assert (again.status, again.body) == (first.status, first.body)
    assert counts(conn) == queue_of(1, 1)


def test_of_a_hundred_identical_posts_at_once_one_is_executed_and_all_get_its_answer(
    crawler: Crawler, conn: Connection
) -> None:
    body = batch(*map(chapter, range(20)), {"slug": "no"})
    requests = [crawler.headers("POST", CHAPTERS, body) | {"Idempotency-Key": "k1"} for _ in range(100)]
    ready = threading.Barrier(100)

    def send(headers: dict[str, str]) -> Answer:
        ready.wait()
        return crawler.send("POST", CHAPTERS, body, headers)

    with ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(send, requests))
    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    assert counts(conn) == queue_of(1, 20)


def test_of_identical_posts_to_several_processes_one_is_executed(
    tmp_path: Path, environ: dict[str, str], make_key: MakeKey, conn: Connection
) -> None:
    """No lock within a process helps here: the database decides."""
    variables = environ | {"NOVEL_INGEST_REQUESTS_PER_MINUTE": "1000"}
    with listening() as listener:
        servers = [Forked(listener, variables) for _ in range(4)]
        crawler = Crawler(listener.getsockname()[1], *make_key())
        body = batch(*map(chapter, range(50)))
        requests = [crawler.headers("POST", CHAPTERS, body) | {"Idempotency-Key": "k1"} for _ in range(40)]
        with ThreadPoolExecutor(40) as threads:
            answers = list(threads.map(lambda headers: crawler.send("POST", CHAPTERS, body, headers), requests))
        for server in servers:
            server.kill()
    assert {(answer.status, answer.body) for answer in answers} == {(202, answers[0].body)}
    assert counts(conn) == queue_of(1, 50)


@contextmanager
def wire_to(database_url: str) -> Iterator[Wire]:
    """A wire to the database in a thread of its own, so that a test may wait for a server process behind it."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Wire(parse_database(database_url)).laid()) as wire,
    ):
        yield wire


def serving_through(wire: Wire, directory: Path, environ: dict[str, str]) -> AbstractContextManager[Served]:
    return serving(directory, environ | {"NOVEL_DATABASE_URL": wire.address.url}, "ingest")


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_lost_during_commit_is_read_back_and_the_batch_is_there_once(
    tmp_path: Path, environ: dict[str, str], make_key: MakeKey, conn: Connection, committed: bool
) -> None:
    with wire_to(environ["NOVEL_DATABASE_URL"]) as wire, serving_through(wire, tmp_path, environ) as served:
        crawler = Crawler(served.port, *make_key())
        assert crawler.push(chapter(9)).status == 202  # there is a connection
        if committed:
            wire.cut_answer_to = COMMIT
        else:
            wire.cut_before = COMMIT
        answer = crawler.push(chapter(1), chapter(2), Idempotency_Key="k1")
        assert answer.status == 202, answer.body
        assert wire.cuts == 1
        assert "ingest.commit_uncertain" in served.said()
        assert crawler.push(chapter(1), chapter(2), Idempotency_Key="k1").body == answer.body
    assert counts(conn) == queue_of(2, 3)


def test_a_process_killed_between_commit_and_response_leaves_an_answer_for_the_retry(
    tmp_path: Path, environ: dict[str, str], make_key: MakeKey, conn: Connection
) -> None:
    key = make_key()
    headers: dict[str, str] = {}
    body = batch(chapter(1), chapter(2))
    with wire_to(environ["NOVEL_DATABASE_URL"]) as wire, serving_through(wire, tmp_path, environ) as served:
        crawler = Crawler(served.port, *key)
        assert crawler.push(chapter(9)).status == 202  # there is a connection
        headers = crawler.headers("POST", CHAPTERS, body)
        wire.hold_answer_to = COMMIT
        with ThreadPoolExecutor(1) as thread:
            sending = thread.submit(crawler.send, "POST", CHAPTERS, body, headers)
            wait_for(lambda: counts(conn) == queue_of(2, 3))  # it is committed, and the process does not know
            served.process.kill()
            with pytest.raises((OSError, http.client.HTTPException)):
                sending.result()
    with serving(tmp_path, environ, "ingest") as served:
        crawler = Crawler(served.port, *key)
        again = crawler.send("POST", CHAPTERS, body, headers)  # byte for byte the same request
        assert again.status == 202, again.body
        assert again.json()["accepted_count"] == 2
        assert crawler.send("POST", CHAPTERS, body, headers).body == again.body
    assert counts(conn) == queue_of(2, 3)


@dataclass(frozen=True)
class Pushed:
    key: str
    items: int
    answer: bytes


class Pusher:
    """A crawler that pushes batch after batch, each until it is accepted, as the retry contract has it."""

    def __init__(self, crawler: Crawler, number: int) -> None:
        self.crawler = crawler
        self.random = random.Random(number)
        self.done: list[Pushed] = []
        self.retries = 0

    def run(self, until: threading.Event) -> None:
        while not until.is_set():
            story_id = uuid.uuid4().hex
            items = self.random.choice((1, 20, 60))
            body = batch(*(chapter(n, source_story_id=story_id, content_raw="Một câu. " * 200) for n in range(items)))
            key = f"key-{story_id}"
            answer = self._accepted(body, key)
            # Ask again now and then: the answer has to be the same, also from another process.
            if self.random.random() < 0.3:
                assert self._accepted(body, key) == answer
            self.done.append(Pushed(key, items, answer))

    def _accepted(self, body: bytes, key: str) -> bytes:
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, "the batch was never accepted"
            try:
                answer = self.crawler.post(CHAPTERS, body, Idempotency_Key=key)
            except (OSError, http.client.HTTPException):
                self.retries += 1
                time.sleep(0.01)
                continue
            if answer.status == 503:
                time.sleep(0.05)
                continue
            assert answer.status == 202, answer.body
            return answer.body


def test_an_api_process_killed_a_hundred_times_under_load_loses_and_doubles_nothing(
    environ: dict[str, str], make_key: MakeKey, conn: Connection
) -> None:
    variables = environ | {
        "NOVEL_INGEST_REQUESTS_PER_MINUTE": "1000000",
        "NOVEL_INGEST_BYTES_PER_MINUTE": str(1 << 40),
        "NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE": "1000000",
        "NOVEL_DATABASE_POOL_SIZE": "4",
    }
    luck = random.Random(7)
    key = make_key()
    with listening() as listener, ThreadPoolExecutor(PUSHERS) as threads:
        servers = [Forked(listener, variables) for _ in range(2)]
        pushers = [Pusher(Crawler(listener.getsockname()[1], *key), number) for number in range(PUSHERS)]
        stop = threading.Event()
        running = [threads.submit(pusher.run, stop) for pusher in pushers]
        try:
            for kill in range(KILLS):
                wait_for(partial(_has_more_than, pushers, sum(len(pusher.done) for pusher in pushers), running))
                time.sleep(luck.uniform(0, 0.04))
                servers[kill % 2].kill()
                servers[kill % 2] = Forked(listener, variables)
        finally:
            stop.set()
            for run in running:
                run.result(90)
            for server in servers:
                server.kill()
    done = [pushed for pusher in pushers for pushed in pusher.done]
    assert sum(pusher.retries for pusher in pushers) > KILLS / 4  # the kills did hit requests under way
    _assert_each_is_there_once(conn, done)


def _has_more_than(pushers: list[Pusher], done: int, running: list[Future[None]]) -> bool:
    failed = any(run.done() and run.exception() for run in running)
    return failed or sum(len(pusher.done) for pusher in pushers) > done


def _assert_each_is_there_once(conn: Connection, done: list[Pushed]) -> None:
    requests: dict[str, str] = dict(
        conn.fetch_all("SELECT idempotency_key, response_json FROM wp_novel_ingest_requests")
    )
    assert requests == {pushed.key: pushed.answer.decode() for pushed in done}
    jobs = conn.fetch_all(
        "SELECT idempotency_key, COUNT(*), COUNT(DISTINCT external_ref) FROM wp_novel_ingest_jobs GROUP BY 1"
    )
    assert {key: (total, distinct) for key, total, distinct in jobs} == {
        pushed.key: (pushed.items, pushed.items) for pushed in done
    }
    assert counts(conn) == queue_of(len(done), sum(pushed.items for pushed in done))
    for pushed in done:
        assert json.loads(pushed.answer)["accepted_count"] == pushed.items
