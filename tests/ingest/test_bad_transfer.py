"""Bodies that do not arrive as they should: too slow, too long, cut off, or not as long as they say."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from http.client import HTTPResponse

import pytest

from schema.connection import Connection
from tests.ingest.client import CHAPTERS, Crawler, batch, chapter
from tests.ingest.conftest import MakeKey, ServeWith, written
from tests.processes import Answer, Served, answer, wait_for

GOOD = batch(*map(chapter, range(50)))
CAP = 12 << 20

Knock = Callable[..., socket.socket]


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with()


@pytest.fixture(autouse=True)
def goes_on(served: Served, conn: Connection, crawler: Crawler) -> Iterator[None]:
    """Whatever came, nothing of it was written, and the server takes what comes next."""
    yield
    assert written(conn) == {}
    assert crawler.post(CHAPTERS, GOOD).status == 202
    assert "Traceback" not in served.said()


@pytest.fixture
def knock(served: Served, crawler: Crawler) -> Knock:
    return lambda **more: knock_at(served, crawler, **more)


def knock_at(served: Served, crawler: Crawler, *, body: bytes = GOOD, framing: str | None = None) -> socket.socket:
    """A connection on which the head of a signed request was sent, and nothing of its body."""
    headers = crawler.headers("POST", CHAPTERS, body)
    lines = [f"{name}: {value}" for name, value in headers.items()]
    framing = f"Content-Length: {len(body)}" if framing is None else framing
    connection = served.connect()
    connection.sendall("\r\n".join([f"POST {CHAPTERS} HTTP/1.1", "Host: test", *lines, framing, "", ""]).encode())
    return connection


def read(connection: socket.socket) -> Answer:
    response = HTTPResponse(connection, method="POST")
    response.begin()
    return answer(response)


def refusal(connection: socket.socket) -> tuple[int, str]:
    """Status and code of the one error body, in both of its shapes."""
    with connection:
        found = read(connection)
    said = found.json()
    assert said["error"]["code"] == said["code"]
    assert said["data"] == {"status": found.status}
    return found.status, said["code"]


def abandoned(served: Served) -> int:
    return served.said().count("http.abandoned")


def test_a_body_that_comes_too_slowly_is_given_up(serve_with: ServeWith, make_key: MakeKey, conn: Connection) -> None:
    served = serve_with(NOVEL_INGEST_BODY_SECONDS="1")
    connection = knock_at(served, Crawler(served.port, *make_key()))
    connection.settimeout(0.1)
    for place in range(len(GOOD)):
        connection.sendall(GOOD[place : place + 1])
        try:
            if connection.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            continue
    connection.settimeout(30)
    with connection:
        found = read(connection)
    assert (found.status, found.json()["code"]) == (408, "request_timeout")
    assert found.headers["connection"] == "close"
    assert "Traceback" not in served.said()


def test_a_body_that_stops_coming_is_given_up(serve_with: ServeWith, make_key: MakeKey) -> None:
    served = serve_with(NOVEL_INGEST_BODY_SECONDS="1")
    connection = knock_at(served, Crawler(served.port, *make_key()))
    connection.sendall(GOOD[:1000])
    assert refusal(connection) == (408, "request_timeout")


@pytest.mark.parametrize("sent", [0, 1, 1000, len(GOOD) - 1])
def test_a_client_that_hangs_up_in_the_middle_leaves_nothing(served: Served, knock: Knock, sent: int) -> None:
    before = abandoned(served)
    with knock() as connection:
        connection.sendall(GOOD[:sent])
    wait_for(lambda: abandoned(served) == before + 1)


def test_a_client_that_resets_the_connection_leaves_nothing(served: Served, knock: Knock) -> None:
    before = abandoned(served)
    connection = knock(framing=f"Content-Length: {len(GOOD)}\r\nExpect: 100-continue")
    assert connection.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 100"  # it has read the head, and wants the body
    connection.sendall(GOOD[:1000])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    wait_for(lambda: abandoned(served) == before + 1)


def test_a_body_shorter_than_it_says_is_not_taken(served: Served, knock: Knock) -> None:
    before = abandoned(served)
    connection = knock(framing=f"Content-Length: {len(GOOD) + 1}")
    connection.sendall(GOOD)
    connection.shutdown(socket.SHUT_WR)
    wait_for(lambda: abandoned(served) == before + 1)
    connection.close()


def test_a_body_longer_than_it_says_is_not_taken(knock: Knock) -> None:
    connection = knock(framing=f"Content-Length: {len(GOOD) - 10}")
    connection.sendall(GOOD)
    # What is left over is taken for a second request, and there is no such method: that may close the connection first.
    with contextlib.suppress(ConnectionError):
        assert refusal(connection) == (401, "invalid_signature")


@pytest.mark.parametrize(
    "framing",
    [
        *("Content-Length: -1", "Content-Length: x", "Content-Length: 1e3", "Content-Length: 5\r\nContent-Length: 6"),
        f"Content-Length: {len(GOOD)}\r\nTransfer-Encoding: chunked",
    ],
)
def test_a_length_that_is_none_is_refused(knock: Knock, framing: str) -> None:
    assert refusal(knock(framing=framing)) == (400, "bad_request")


@pytest.mark.parametrize("length", [CAP + 1, 10**18, 10**30])
def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(knock: Knock, length: int) -> None:
    with knock(framing=f"Content-Length: {length}") as connection:
        first = connection.recv(12, socket.MSG_WAITALL)
    assert first in (b"HTTP/1.1 413", b"HTTP/1.1 400")  # the parser itself takes no length of so many digits


def test_a_body_in_pieces_is_taken_like_any_other(knock: Knock, conn: Connection) -> None:
    with knock(framing="Transfer-Encoding: chunked") as connection:
        for place in range(0, len(GOOD), 999):
            connection.sendall(chunk(GOOD[place : place + 999]))
        connection.sendall(chunk(b""))
        found = read(connection)
    assert (found.status, found.json()["accepted_count"]) == (202, 50)
    for table in ("ingest_requests", "ingest_jobs", "ingest_payload_blobs", "ingest_ready", "nonce_replay"):
        conn.execute(f"DELETE FROM wp_novel_{table}")


def test_a_body_in_pieces_that_becomes_too_large_is_refused(knock: Knock) -> None:
    piece = chunk(bytes(1 << 20))
    connection = knock(framing="Transfer-Encoding: chunked")
    for _ in range(13):
        connection.sendall(piece)
    assert refusal(connection) == (413, "payload_too_large")


@pytest.mark.parametrize("piece", [b"xyz\r\nabc\r\n", b"-5\r\nabc\r\n", b"5\r\nabcdefgh\r\n", b"fffffffffffffffff\r\n"])
def test_pieces_that_are_none_are_refused(served: Served, knock: Knock, piece: bytes) -> None:
    before = abandoned(served)
    with knock(framing="Transfer-Encoding: chunked") as connection:
        connection.sendall(piece)
        assert connection.recv(1) == b""  # the request was under way: closing is all that is left to say
    wait_for(lambda: abandoned(served) == before + 1)


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)
