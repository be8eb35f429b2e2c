"""What surrounds every request: its id, its line and measurement, and the cap on its body."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from runtime import logs, middleware
from runtime.middleware import AccessLog, BodyCap, RequestId
from tests.runtime.conftest import LogLines
from tests.runtime.serving import (
    MAX_BODY_BYTES,
    answer_length,
    answer_ok,
    application,
    client,
    counted,
    route,
    serving,
    until,
)

pytestmark = pytest.mark.anyio
log = logs.get("tests.novel")


async def chunks(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


# -- the request's id -----------------------------------------------------------------------------------


async def answer_id(request: Request) -> Response:
    log.info("inside")
    return Response(request.state.request_id)


async def test_a_request_without_an_id_gets_one_of_its_own() -> None:
    asking = client(application(route("/it", answer_id)))
    first, second = await asking.get("/it"), await asking.get("/it")
    assert len(first.headers["x-request-id"]) == 32
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert first.text == first.headers["x-request-id"]


@pytest.mark.parametrize("given", ["r-1", "A.b_c-9", "x" * 64])
async def test_a_well_formed_id_of_the_caller_is_kept_and_echoed(given: str) -> None:
    answer = await client(application(route("/it", answer_id))).get("/it", headers={"X-Request-Id": given})
    assert answer.headers.get_list("x-request-id") == [given]
    assert answer.text == given


@pytest.mark.parametrize("given", [b"", b"x" * 65, b"a b", b'a"b', b"a;b", b"a\tb", "đ".encode(), b"\xff", b"a/b"])
async def test_a_malformed_id_is_replaced(given: bytes) -> None:
    answer = await client(application(route("/it", answer_id))).get("/it", headers=[(b"X-Request-Id", given)])
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.text == answer.headers["x-request-id"]


async def test_the_id_is_on_every_line_of_the_request_and_on_no_other(log_lines: LogLines) -> None:
    await client(application(route("/it", answer_id))).get("/it", headers={"X-Request-Id": "r-1"})
    log.info("outside")
    assert log_lines.one("inside")["request_id"] == "r-1"
    assert log_lines.one("http.answered")["request_id"] == "r-1"
    assert "request_id" not in log_lines.one("outside")


async def test_requests_side_by_side_keep_their_own_ids(log_lines: LogLines) -> None:
    both_inside = asyncio.Barrier(2)

    async def meet(request: Request) -> Response:
        await both_inside.wait()
        return await answer_id(request)

    asking = client(application(route("/it", meet)))
    first, second = await asyncio.gather(
        asking.get("/it", headers={"X-Request-Id": "r-1"}), asking.get("/it", headers={"X-Request-Id": "r-2"})
    )
    assert (first.text, second.text) == ("r-1", "r-2")
    assert sorted(line["request_id"] for line in log_lines.of("inside")) == ["r-1", "r-2"]


@pytest.mark.parametrize("path", ["/nowhere", "/fails", "/large"])
async def test_every_refusal_carries_the_id_too(path: str) -> None:
    async def fail(request: Request) -> Response:
        raise RuntimeError("inner")

    app = application(route("/fails", fail), route("/large", answer_length))
    answer = await client(app).post(path, headers={"X-Request-Id": "r-1"}, content=b"x" * (MAX_BODY_BYTES + 1))
    assert answer.status_code >= 400
    assert answer.headers["x-request-id"] == "r-1"


# -- its line and its measurement -----------------------------------------------------------------------


async def test_an_answered_request_is_one_line_and_one_count_under_its_template(log_lines: LogLines) -> None:
    before = counted("POST", "/stories/{slug}", 200)
    app = application(route("/stories/{slug}", answer_ok))
    await client(app).post("/stories/đấu-phá?token=hush", headers={"Authorization": "hush"}, content=b"hush")
    line = log_lines.one("http.answered")
    assert (line["method"], line["path"], line["status"]) == ("POST", "/stories/đấu-phá", 200)
    assert line["body_bytes"] == 2
    assert line["seconds"] >= 0
    assert line["client"] == "127.0.0.1"
    assert "hush" not in "".join(str(line) for line in log_lines.all() if line["logger"] != "httpx")
    assert counted("POST", "/stories/{slug}", 200) == before + 1


async def test_no_path_becomes_a_label_of_a_metric() -> None:
    app = application(route("/chapters/{id}", answer_ok, "GET"))
    before = counted("GET", "unmatched", 404), counted("DELETE", "/chapters/{id}", 405)
    await client(app).get("/chapters/7/unheard-of")
    await client(app).get("/chapters/unheard-of")
    await client(app).delete("/chapters/unheard-of")
    assert counted("GET", "unmatched", 404) == before[0] + 1
    assert counted("DELETE", "/chapters/{id}", 405) == before[1] + 1
    labels = {sample.labels.get("route") for metric in REGISTRY.collect() for sample in metric.samples}
    assert not [label for label in labels if label and "unheard-of" in label]


async def test_an_invented_method_becomes_no_label_of_a_metric() -> None:
    before = counted("OTHER", "unmatched", 404)
    await client(application()).request("BREW", "/nowhere")
    assert counted("OTHER", "unmatched", 404) == before + 1
    assert counted("BREW", "unmatched", 404) == 0


async def test_the_time_of_a_request_is_measured_under_its_template() -> None:
    def measured() -> float:
        return REGISTRY.get_sample_value("novel_http_request_seconds_count", {"route": "/timed/{id}"}) or 0.0

    before = measured()
    await client(application(route("/timed/{id}", answer_ok))).get("/timed/1")
    assert measured() == before + 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_the_questions_of_machines_are_counted_but_not_logged(path: str, log_lines: LogLines) -> None:
    before = counted("GET", path, 200)
    await client(application()).get(path)
    assert log_lines.of("http.answered") == []
    assert counted("GET", path, 200) == before + 1


async def test_an_unforeseen_failure_is_logged_once_with_its_traceback_and_counted(log_lines: LogLines) -> None:
    async def fail(request: Request) -> Response:
        raise RuntimeError("inner")

    before = counted("GET", "/fails/{id}", 500)
    answer = await client(application(route("/fails/{id}", fail))).get("/fails/1")
    assert answer.status_code == 500
    failed = log_lines.one("http.failed")
    assert failed["level"] == "error"
    assert failed["exception"].endswith("RuntimeError: inner")
    assert log_lines.one("http.answered")["status"] == 500
    assert counted("GET", "/fails/{id}", 500) == before + 1


async def test_a_failure_amid_an_answer_closes_the_connection_and_is_logged(log_lines: LogLines) -> None:
    async def half(request: Request) -> Response:
        async def content() -> AsyncIterator[bytes]:
            yield b"half"
            raise RuntimeError("inner")

        return StreamingResponse(content())

    app = application(route("/half", half))
    with pytest.raises(RuntimeError, match="inner"):  # the server is told, and ends the connection
        await client(app).get("/half")
    async with serving(app) as served, httpx.AsyncClient() as asking:
        with pytest.raises(httpx.RemoteProtocolError):  # the client must not take half for the whole
            await asking.get(served.url + "/half")
        await until(lambda: len(log_lines.of("http.answered")) == 2)
    assert [line["exception"][-5:] for line in log_lines.of("http.failed")] == ["inner", "inner"]
    assert [line["body_bytes"] for line in log_lines.of("http.answered")] == [4, 4]


async def test_a_client_that_leaves_amid_its_request_is_no_failure_of_ours(log_lines: LogLines) -> None:
    before = counted("POST", "/upload", 499), counted("POST", "/upload", 500)
    async with serving(application(route("/upload", answer_length))) as served:
        _, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(b"POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nonly this")
        await writer.drain()
        writer.close()
        await until(lambda: log_lines.of("http.abandoned") or log_lines.of("http.answered"))
    assert log_lines.one("http.abandoned")["path"] == "/upload"
    assert log_lines.of("http.failed") == []
    assert [line for line in log_lines.all() if line["level"] == "error"] == []
    assert counted("POST", "/upload", 499) == before[0] + 1
    assert counted("POST", "/upload", 500) == before[1]


async def test_a_client_that_leaves_before_its_answer_does_no_harm(log_lines: LogLines) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        entered.set()
        await leave.wait()
        return Response("x" * 100_000)

    async with serving(application(route("/slow", slow), route("/it", answer_ok))) as served:
        _, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
        await entered.wait()
        writer.close()
        await writer.wait_closed()
        leave.set()
        await until(lambda: log_lines.of("http.answered"))
        async with httpx.AsyncClient() as asking:
            assert (await asking.get(served.url + "/it")).text == "ok"
    assert log_lines.of("http.failed") == []


# -- the cap on its body --------------------------------------------------------------------------------


async def test_a_body_up_to_the_cap_is_read_and_one_byte_more_is_refused() -> None:
    async with serving(application(route("/it", answer_length))) as served, httpx.AsyncClient() as asking:
        fits = await asking.post(served.url + "/it", content=b"x" * MAX_BODY_BYTES)
        over = await asking.post(served.url + "/it", content=b"x" * (MAX_BODY_BYTES + 1))
    assert (fits.status_code, fits.text) == (200, str(MAX_BODY_BYTES))
    assert over.status_code == 413
    assert over.json()["code"] == "payload_too_large"
    assert over.json()["message"] == f"The request body is larger than {MAX_BODY_BYTES} bytes."
    assert over.headers["connection"] == "close"


async def test_a_chunked_body_is_counted_as_it_arrives() -> None:
    async with serving(application(route("/it", answer_length))) as served, httpx.AsyncClient() as asking:
        fits = await asking.post(served.url + "/it", content=chunks(1000, 24))
        over = await asking.post(served.url + "/it", content=chunks(1000, 25))
    assert (fits.status_code, fits.text) == (200, "1024")
    assert over.status_code == 413
    assert over.headers["connection"] == "close"


async def test_a_declared_length_is_refused_before_the_body_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "LINGER_SECONDS", 0.1)
    async with serving(application(route("/it", answer_length))) as served:
        answer = await served.send(
            b"POST /it HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\nExpect: 100-continue\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_an_endless_chunked_body_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "LINGER_SECONDS", 0.1)
    async with serving(application(route("/it", answer_length))) as served:
        head = b"POST /it HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await served.send(head + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 2)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_what_follows_a_length_that_is_too_small_is_not_part_of_the_body() -> None:
    async with serving(application(route("/it", answer_length))) as served:
        answer = await served.send(
            b"POST /it HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcdefghij"
        )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n3")


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 5x\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n",
    ],
)
async def test_an_ambiguous_length_never_reaches_the_application(headers: bytes, log_lines: LogLines) -> None:
    async with serving(application(route("/it", answer_length))) as served:
        answer = await served.send(b"POST /it HTTP/1.1\r\nHost: h\r\n" + headers + b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert log_lines.of("http.answered") == []


async def test_more_than_a_small_declared_length_is_counted_where_a_server_lets_it_through() -> None:
    app = application(route("/it", answer_length))
    answer = await client(app).post("/it", headers={"Content-Length": "1"}, content=chunks(1000, 1000))
    assert answer.status_code == 413


async def test_a_route_that_reads_no_body_answers_whatever_is_sent() -> None:
    async with serving(application(route("/it", answer_ok))) as served, httpx.AsyncClient() as asking:
        answer = await asking.post(served.url + "/it", content=chunks(1000, 1000))
    assert answer.status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_client_that_sends_far_too_much_still_hears_why(chunked: bool) -> None:
    """A server that closes while bytes are under way resets the connection, and the answer is lost with it."""
    mebibyte = 1 << 20
    async with serving(application(route("/it", answer_length))) as served:
        for _ in range(5):
            body = chunks(*[mebibyte] * 8) if chunked else b"x" * 8 * mebibyte
            async with httpx.AsyncClient() as asking:
                assert (await asking.post(served.url + "/it", content=body)).status_code == 413


async def test_nothing_is_waited_for_after_the_end_of_a_body_that_was_too_large() -> None:
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": b"x" * (MAX_BODY_BYTES + 1)}]

    async def receive() -> Any:
        return messages.pop()  # a second time fails

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/it", "headers": [], "query_string": b""}
    await application(route("/it", answer_length))(scope, receive, send)
    assert sent[0]["status"] == 413
    assert not sent[-1].get("more_body")


@pytest.mark.parametrize(("digits", "status"), [("0" * 5000 + "5", 200), ("9" * 5000, 413)])
async def test_a_declared_length_of_thousands_of_digits_is_a_number_all_the_same(digits: str, status: int) -> None:
    asking = client(application(route("/it", answer_length)))
    answer = await asking.post("/it", content=b"12345", headers={"Content-Length": digits})
    assert answer.status_code == status


@pytest.mark.parametrize(
    "wrap", [RequestId, lambda app: AccessLog(app, templates={}), lambda app: BodyCap(app, max_body_bytes=1)]
)
async def test_what_is_no_http_request_passes_untouched(wrap: Any) -> None:
    seen: list[tuple[Any, Any, Any]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, receive, send))

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    scope = {"type": "lifespan"}
    await wrap(app)(scope, receive, send)
    assert seen == [({"type": "lifespan"}, receive, send)]
