"""An HTTP process as it is composed: health routes first, then the services', the middleware around all of them."""

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from runtime.health import Check
from tests.runtime.serving import MAX_BODY_BYTES, answer_length, answer_ok, application, client, route, serving

pytestmark = pytest.mark.anyio


async def test_routes_of_services_stand_beside_the_health_routes() -> None:
    asking = client(application(route("/it", answer_ok)))
    assert (await asking.get("/it")).text == "ok"
    assert (await asking.get("/healthz")).json() == {"status": "ok"}


async def test_a_catch_all_route_of_a_service_does_not_hide_the_health_routes() -> None:
    async def broken() -> None:
        raise RuntimeError("away")

    asking = client(application(route("/{path:path}", answer_ok), checks=[Check("database", broken)]))
    assert (await asking.get("/readyz")).status_code == 503
    assert (await asking.get("/anything")).text == "ok"


async def test_the_settings_cap_every_body() -> None:
    asking = client(application(route("/it", answer_length)))
    assert (await asking.post("/it", content=b"x" * MAX_BODY_BYTES)).status_code == 200
    assert (await asking.post("/it", content=b"x" * (MAX_BODY_BYTES + 1))).status_code == 413


@pytest.mark.parametrize(("error", "status"), [(ConnectionError, 503), (ConnectionResetError, 503), (ValueError, 500)])
async def test_only_the_named_failures_mean_unavailable(error: type[Exception], status: int) -> None:
    async def fail(request: Request) -> Response:
        raise error("inner")

    app = application(route("/it", fail), means_unavailable=(ConnectionError, TimeoutError))
    assert (await client(app).get("/it")).status_code == status


async def test_the_lifespan_surrounds_the_serving() -> None:
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        told.append("begun")
        yield
        told.append("ended")

    async def tell(request: Request) -> Response:
        told.append("asked")
        return Response("ok")

    async with serving(application(route("/it", tell), lifespan=life)) as served, httpx.AsyncClient() as asking:
        await asking.get(served.url + "/it")
    assert told == ["begun", "asked", "ended"]


async def test_an_address_with_a_slash_too_many_is_not_redirected_to_whatever_host_was_named() -> None:
    answer = await client(application(route("/it", answer_ok))).get("/it/", headers={"Host": "evil.example"})
    assert answer.status_code == 404
    assert "location" not in answer.headers
