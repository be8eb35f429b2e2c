"""Applications under test: asked directly, or on a real server on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from runtime import health, server, service
from runtime.settings import HttpSettings
from runtime.shutdown import Stop

MAX_BODY_BYTES = 1024
Endpoint = Callable[[Request], Awaitable[Response]]


@contextlib.asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


def application(
    *routes: BaseRoute,
    checks: Sequence[health.Check] = (),
    stop: Stop | None = None,
    lifespan: service.Lifespan = nothing,
    means_unavailable: Sequence[type[Exception]] = (),
) -> Starlette:
    return service.application(
        routes,
        checks=checks,
        lifespan=lifespan,
        stop=stop or Stop(),
        http=HttpSettings(max_body_bytes=MAX_BODY_BYTES),
        means_unavailable=means_unavailable,
    )


def route(path: str, endpoint: Endpoint, *methods: str) -> Route:
    return Route(path, endpoint, methods=list(methods or ("GET", "POST")))


async def answer_ok(request: Request) -> Response:
    return Response("ok")


async def answer_length(request: Request) -> Response:
    return Response(str(len(await request.body())))


def client(app: ASGIApp) -> httpx.AsyncClient:
    """A client that hands its requests to the application itself. A failure that escapes the application is raised."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://novels.example")


@dataclass(frozen=True)
class Serving:
    host: str
    port: int
    stop: Stop
    done: "asyncio.Task[None]"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def send(self, data: bytes) -> bytes:
        """Send raw bytes and read until the server closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(data)
        try:
            async with asyncio.timeout(30):
                return await reader.read()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, *, stop: Stop | None = None, drain_seconds: float = 5.0, unready_seconds: float = 0.0
) -> AsyncIterator[Serving]:
    """Run the application on a real server. It is stopped in the end, unless the test did so."""
    stop = stop or Stop()
    listener = server.listen("127.0.0.1", 0)
    host, port = listener.getsockname()
    ready = asyncio.Event()
    done = asyncio.create_task(
        server.serve(
            app,
            listener,
            stop=stop,
            drain_seconds=drain_seconds,
            unready_seconds=unready_seconds,
            on_ready=ready.set,
        )
    )
    async with asyncio.timeout(30):
        await ready.wait()
    try:
        yield Serving(host, port, stop, done)
    finally:
        stop.request("end of the test")
        async with asyncio.timeout(30):
            await done


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def counted(method: str, route: str, status: int) -> float:
    """How many requests were counted under these labels."""
    labels = {"method": method, "route": route, "status": str(status)}
    return REGISTRY.get_sample_value("novel_http_requests_total", labels) or 0.0
