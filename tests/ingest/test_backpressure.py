"""A full queue: batches are turned away early, lose nothing by it, and are let in again when there is room."""

import http.client
import uuid
from collections.abc import Mapping

import pytest

from schema.connection import Connection
from tests.ingest.client import CHAPTERS, Crawler, batch, chapter, refusal
from tests.ingest.conftest import MakeKey, ServeWith, written
from tests.processes import ANSWER_SECONDS, HOST, Answer, Served, answer, wait_for

REQUESTS = "/wp-json/novel/v1/ingest/requests"
BODY = batch(chapter(1))
LARGE = b"x" * 10_000_000


def head_alone(served: Served, headers: Mapping[str, str]) -> Answer:
    """The answer to a batch of which not one byte of the body is sent."""
    connection = http.client.HTTPConnection(HOST, served.port, timeout=ANSWER_SECONDS)
    connection.putrequest("POST", CHAPTERS)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    try:
        return answer(connection.getresponse())
    finally:
        connection.close()


@pytest.mark.parametrize("variable", ["NOVEL_QUEUE_MAX_ITEMS", "NOVEL_QUEUE_MAX_BYTES"])
def test_a_full_queue_turns_batches_away_before_their_body_is_read(
    serve_with: ServeWith, make_key: MakeKey, conn: Connection, variable: str
) -> None:
    served = serve_with(**{variable: "2"})
    crawler = Crawler(served.port, *make_key())

    def accepts() -> bool:
        return crawler.push(chapter()).status == 202

    assert crawler.push(chapter(1), chapter(2)).status == 202
    wait_for(lambda: not accepts())
    before = written(conn)
    refused = head_alone(served, crawler.headers("POST", CHAPTERS, LARGE) | {"Content-Length": str(len(LARGE))})
    assert refusal(refused) == (503, "queue_full")
    assert refused.headers["retry-after"] == "15"
    assert refusal(crawler.post(CHAPTERS, LARGE)) == (
        503,
        "queue_full",
    )  # who sends it all the same can read the answer
    assert written(conn) == before
    # Who only asks is let in.
    assert crawler.get(f"{REQUESTS}/{uuid.uuid4()}").status == 404
    # What is refused is told first to those whose request could never be accepted.
    assert refusal(crawler.push(chapter(), Idempotency_Key="")) == (400, "missing_idempotency_key")
    conn.execute("DELETE FROM wp_novel_ingest_ready")
    wait_for(accepts)


def test_a_refused_batch_can_be_pushed_again_as_it_is_once_the_queue_has_room(
    serve_with: ServeWith, make_key: MakeKey, conn: Connection
) -> None:
    crawler = Crawler(serve_with(NOVEL_QUEUE_MAX_ITEMS="2").port, *make_key())
    wait_for(lambda: crawler.push(chapter()).status == 503)
    sent = crawler.headers("POST", CHAPTERS, BODY)
    assert refusal(crawler.send("POST", CHAPTERS, BODY, sent)) == (503, "queue_full")
    conn.execute("DELETE FROM wp_novel_ingest_ready")
    wait_for(lambda: crawler.send("POST", CHAPTERS, BODY, sent).status == 202)
