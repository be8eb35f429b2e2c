"""Runs an ASGI application on a socket until it is asked to stop."""

import asyncio
import contextlib
import http.client
import math
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from runtime import logs
from runtime.http_protocol import BoundedProtocol
from runtime.problems import Problem
from runtime.shutdown import Stop

log = logs.get(__name__)

BACKLOG = 2048
ANSWER_SECONDS = 5.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  not to bind, but to ask


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process's `Stop` is the only way to end it."""

    def __init__(self, config: uvicorn.Config, *, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Bind the address, or say in one line why that cannot be done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Problem(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another address with --host and --port."
        ) from None
    listener.set_inheritable(True)
    return listener


def answers(listener: socket.socket, path: str) -> bool:
    """Whether a server behind this socket of ours answers there with 200."""
    host, port = listener.getsockname()[:2]
    client = http.client.HTTPConnection(_WILDCARDS.get(host, host), port, timeout=ANSWER_SECONDS)
    try:
        client.request("GET", path)
        return client.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        client.close()


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stop: Stop,
    drain_seconds: float,
    unready_seconds: float,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until `stop`, then let those under way finish within `drain_seconds`."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=math.ceil(drain_seconds),
        timeout_keep_alive=30,
        ws="none",
    )
    server = _Server(config, on_ready=on_ready)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait_async())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        log.info("server.stopping", reason=stop.reason, drain_seconds=drain_seconds)
        await asyncio.sleep(unready_seconds)
        server.should_exit = True
    stopping.cancel()
    await serving
