"""Clients that ask for too much, too slowly or without end, on raw sockets against a running server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from runtime import http_protocol
from tests.runtime.serving import application, route, serving

HEAD = b"GET /it HTTP/1.1\r\nHost: test\r\n"


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        [length] = [int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")]
        return int(head[9:12]), await self.reader.readexactly(length)

    async def refused(self) -> str:
        """The error code with which the server refuses and closes."""
        status, body = await self.answer()
        error = json.loads(body)
        assert error["data"]["status"] == status
        assert await self.reader.read() == b""
        return str(error["code"])

    async def flood(self, data: bytes, *, megabytes: int) -> int:
        """Send the same again and again until the server closes; returns how many bytes that took."""
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < megabytes << 20 and not self.reader.at_eof():
                await self.send(data)
                sent += len(data)
                await asyncio.sleep(0)
        return sent


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def it(request: Request) -> Response:
        body = await request.body()
        return JSONResponse({"bytes": len(body), "forwarded": request.headers.get("x-forwarded-for")})

    async def silent(request: Request) -> Response:
        await asyncio.sleep(60)
        return PlainTextResponse("late")

    app = application(route("/it", it), route("/silent", silent))
    async with serving(app, drain_seconds=1) as served:
        yield int(served.url.rpartition(":")[2])


@pytest.fixture
async def client(port: int) -> AsyncIterator[Client]:
    async with asyncio.timeout(60):
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        yield client
        client.writer.close()


async def test_an_ordinary_head_is_read_and_the_connection_kept(client: Client) -> None:
    for _ in range(3):
        await client.send(HEAD + b"X-Long: " + b"x" * 20_000 + b"\r\n\r\n")
        assert (await client.answer())[0] == 200


async def test_a_body_sent_slowly_after_a_large_head_is_read_whole(client: Client) -> None:
    await client.send(b"POST /it HTTP/1.1\r\nHost: test\r\nContent-Length: 900\r\nX: " + b"x" * 60_000 + b"\r\n\r\n")
    for _ in range(30):
        await client.send(b"y" * 30)
        await asyncio.sleep(0.001)
    assert json.loads((await client.answer())[1])["bytes"] == 900


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD, b"X-A: bbbbbbbb\r\n" * 100),
        (HEAD + b"X-Endless: ", b"x" * 5000),
        (b"GET /", b"x" * 5000),
        (b"", b"\r\n" * 2000),
    ],
    ids=["headers without end", "a header without end", "an address without end", "empty lines without end"],
)
async def test_a_head_without_end_is_refused_early(client: Client, begin: bytes, more: bytes) -> None:
    await client.send(begin)
    assert await client.flood(more, megabytes=64) < 16 << 20
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        assert (await client.answer())[0] in (400, 431)


async def test_a_head_that_is_too_large_gets_the_error_body(client: Client) -> None:
    await client.send(HEAD + b"X-Long: " + b"x" * http_protocol.MAX_HEAD_BYTES)
    assert await client.refused() == "request_header_fields_too_large"


async def test_what_is_no_http_gets_the_error_body(client: Client) -> None:
    await client.send(b"hello\r\n\r\n")
    assert await client.refused() == "bad_request"


async def test_too_many_headers_are_refused(client: Client) -> None:
    await client.send(HEAD + b"A: b\r\n" * (http_protocol.MAX_HEADERS + 1) + b"\r\n")
    assert await client.refused() == "bad_request"


CHUNKED = b"POST /it HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


async def test_a_trailer_does_not_pass_for_a_header(client: Client) -> None:
    await client.send(CHUNKED + b"X-Forwarded-For: 6.6.6.6\r\n\r\n")
    assert json.loads((await client.answer())[1]) == {"bytes": 3, "forwarded": None}


@pytest.mark.parametrize("more", [b"X-A: bbbbbbbb\r\n" * 100, b"x" * 5000], ids=["many", "one"])
async def test_trailers_without_end_are_cut_off(client: Client, more: bytes) -> None:
    await client.send(CHUNKED)
    assert await client.flood(more, megabytes=64) < 16 << 20


async def test_a_few_requests_at_once_are_answered_in_turn(client: Client) -> None:
    await client.send((HEAD + b"\r\n") * 10)
    assert [(await client.answer())[0] for _ in range(10)] == [200] * 10


async def test_requests_piled_up_without_end_are_cut_off(client: Client) -> None:
    await client.send(b"GET /silent HTTP/1.1\r\nHost: test\r\n\r\n")
    assert await client.flood((HEAD + b"\r\n") * 100, megabytes=64) < 16 << 20


@pytest.mark.parametrize("begin", [b"", b"GET /it HTT", HEAD])
async def test_a_head_that_does_not_come_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    if begin:
        await client.send(begin)
    assert await client.refused() == "request_timeout"
    client.writer.close()


async def test_the_head_of_a_further_request_is_given_up_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.send(HEAD + b"\r\n")
    assert (await client.answer())[0] == 200
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    await client.send(b"GET")
    assert await client.refused() == "request_timeout"


async def test_a_body_that_does_not_come_ends_the_connection(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.2)
    await client.send(b"POST /it HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf")
    with contextlib.suppress(ConnectionResetError):
        assert await client.reader.read() == b""


async def test_more_connections_than_files_are_refused_and_the_others_go_on(
    client: Client, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.send(HEAD + b"\r\n")
    assert (await client.answer())[0] == 200
    monkeypatch.setattr(http_protocol, "max_connections", lambda: 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    await client.send(HEAD + b"\r\n")
    assert (await client.answer())[0] == 200


def test_some_files_are_kept_for_ourselves() -> None:
    assert http_protocol.max_connections() >= 10


async def test_a_body_of_one_byte_chunks_is_handed_on_in_few_pieces() -> None:
    """Each piece costs a copy and a timer: a million of them would hold up all others for seconds."""

    async def pieces(request: Request) -> Response:
        sizes = [len(piece) async for piece in request.stream()]
        return JSONResponse({"bytes": sum(sizes), "pieces": len(sizes)})

    async with serving(application(route("/it", pieces, "POST"))) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        client = Client(reader, writer)
        await client.send(b"POST /it HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")
        await client.send(b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n")
        status, body = await client.answer()
        writer.close()
    seen = json.loads(body)
    assert (status, seen["bytes"]) == (200, 1000)
    assert seen["pieces"] < 100
