"""The server listens or says why not, answers until the stop, and lets what is under way finish within a deadline."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from runtime import ports, server
from runtime.problems import Problem
from runtime.shutdown import Stop
from tests.conftest import ROOT, clean_environ
from tests.runtime.conftest import LogLines
from tests.runtime.serving import answer_ok, application, counted, route, serving, until
from tests.runtime.waiting import number_in

pytestmark = pytest.mark.anyio


def test_an_address_in_use_is_said_in_one_line() -> None:
    with server.listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Problem) as raised:
            server.listen("127.0.0.1", port)
    assert str(raised.value) == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use. Choose another address with --host and --port."
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "2001:db8::1"])
def test_an_address_that_is_not_ours_is_said_in_one_line(host: str) -> None:
    with pytest.raises(Problem, match=f"^cannot listen on {host}:8080: [A-Z].*--host and --port\\.$"):
        server.listen(host, 8080)


def test_a_listener_can_be_handed_to_a_child_and_its_port_used_again_at_once() -> None:
    port = ports.find()
    for _ in range(2):
        with server.listen("127.0.0.1", port) as listener:
            assert listener.get_inheritable()
            with socket.create_connection(("127.0.0.1", port)):
                accepted, _ = listener.accept()
                accepted.close()


def test_it_listens_on_ipv6_too() -> None:
    try:
        listener = server.listen("::1", 0)
    except Problem:
        pytest.skip("this machine has no IPv6")
    with listener, socket.create_connection(listener.getsockname()[:2]):
        pass


async def test_it_answers_until_the_stop_and_then_no_more() -> None:
    async with serving(application(route("/it", answer_ok))) as served, httpx.AsyncClient() as asking:
        assert (await asking.get(served.url + "/it")).text == "ok"
        served.stop.request("SIGTERM")
        await served.done
        with pytest.raises(httpx.ConnectError):
            await asking.get(served.url + "/it")


async def test_it_does_not_say_what_it_is() -> None:
    async with serving(application(route("/it", answer_ok))) as served, httpx.AsyncClient() as asking:
        assert "server" not in (await asking.get(served.url + "/it")).headers


async def test_forwarded_addresses_are_not_believed(log_lines: LogLines) -> None:
    async with serving(application(route("/it", answer_ok))) as served, httpx.AsyncClient() as asking:
        await asking.get(served.url + "/it", headers={"X-Forwarded-For": "203.0.113.9"})
    assert log_lines.one("http.answered")["client"] == "127.0.0.1"


async def test_a_request_under_way_finishes_after_the_stop(log_lines: LogLines) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        entered.set()
        await leave.wait()
        return Response("done")

    async with serving(application(route("/slow", slow)), drain_seconds=30) as served, httpx.AsyncClient() as asking:
        answer = asyncio.create_task(asking.get(served.url + "/slow"))
        await entered.wait()
        served.stop.request("SIGTERM")
        await until(lambda: not is_listening(served.port))
        assert not served.done.done()
        leave.set()
        assert (await answer).text == "done"
        await served.done
    assert log_lines.one("server.stopping")["reason"] == "SIGTERM"


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_request_that_outlives_the_deadline_is_told_to_try_again_and_counted(log_lines: LogLines) -> None:
    entered = asyncio.Event()
    ended: list[str] = []

    async def endless(request: Request) -> Response:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        yield
        ended.append("pool closed")

    before = counted("GET", "/endless", 503)
    app = application(route("/endless", endless), lifespan=life)
    async with serving(app, drain_seconds=1) as served, httpx.AsyncClient() as asking:
        answer = asyncio.create_task(asking.get(served.url + "/endless"))
        await entered.wait()
        served.stop.request("SIGTERM")
        await until(served.done.done)
        told = await answer
    assert (told.status_code, told.json()["code"]) == (503, "unavailable")
    await until(lambda: log_lines.of("http.answered"))
    assert counted("GET", "/endless", 503) == before + 1
    assert ended == ["pool closed"]


async def test_an_idle_connection_does_not_delay_the_stop() -> None:
    app = application(route("/it", answer_ok))
    async with serving(app, drain_seconds=600) as served, httpx.AsyncClient() as asking:
        await asking.get(served.url + "/it")  # and its connection is kept alive
        served.stop.request("SIGTERM")
        async with asyncio.timeout(30):
            await served.done


async def test_it_still_answers_for_a_while_after_readiness_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await over.wait()

    monkeypatch.setattr(server, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    stop = Stop()
    app = application(route("/it", answer_ok), stop=stop)
    async with serving(app, stop=stop, unready_seconds=120) as served, httpx.AsyncClient() as asking:
        stop.request("SIGTERM")
        await until(lambda: waited)
        assert (await asking.get(served.url + "/readyz")).json()["status"] == "stopping"
        assert (await asking.get(served.url + "/it")).text == "ok"
        assert not served.done.done()
        over.set()
        await served.done
    assert waited == [120]


async def test_a_stop_before_the_start_ends_it_in_order() -> None:
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        told.append("begun")
        yield
        told.append("ended")

    stop = Stop()
    stop.request("SIGTERM")
    async with asyncio.timeout(30):
        await server.serve(
            application(lifespan=life),
            server.listen("127.0.0.1", 0),
            stop=stop,
            drain_seconds=1,
            unready_seconds=0,
        )
    assert told == ["begun", "ended"]


PROGRAM = """
import contextlib, sys, uvloop
from pathlib import Path
from runtime import logs, server, service
from runtime.settings import HttpSettings
from runtime.shutdown import Stop, on_signals

@contextlib.asynccontextmanager
async def life():
    if "fail" in sys.argv:
        raise RuntimeError("no database")
    yield
    print("life ended", flush=True)

logs.configure(format="json", level="info")
listener = server.listen("127.0.0.1", 0)
with on_signals(Stop()) as stop:
    app = service.application([], checks=[], lifespan=life, stop=stop, http=HttpSettings())
    uvloop.run(server.serve(
        app, listener, stop=stop, drain_seconds=5, unready_seconds=0,
        on_ready=lambda: Path(sys.argv[1]).write_text(f"{listener.getsockname()[1]}\\n"),
    ))
print("served", stop.reason, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_serving_process_in_order(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "port")],
        cwd=ROOT,
        env=clean_environ({}),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            port = number_in(tmp_path / "port")
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            os.kill(process.pid, number)
            said, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert said == f"life ended\nserved {number.name}\n"
    assert process.returncode == 0


def test_a_lifespan_that_cannot_begin_fails_the_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "port"), "fail"],
        cwd=ROOT,
        env=clean_environ({}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert not (tmp_path / "port").exists()
