"""Puts services together into one HTTP application: the only place that knows all of them."""

import contextlib
import functools
from collections.abc import AsyncIterator, Sequence
from importlib import metadata
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from admin import status
from cli import queue_figures
from ingest import openapi as ingest_openapi
from ingest import routes as ingest_routes
from ingest.service import Ingest
from readapi import route_index
from readapi.rest_route import RestRoute
from runtime import api_docs, openapi, service
from runtime.health import Check
from runtime.openapi import Operation
from runtime.problems import Problem
from runtime.settings import Settings
from runtime.shutdown import Stop
from store import errors, pool, schema_version
from store.redis_link import RedisLink

SERVICES = ("ingest", "readapi", "admin")


def application(settings: Settings, names: Sequence[str], *, stop: Stop) -> Starlette:
    """The application that serves these services."""
    database = pool.from_settings(settings.database)
    redis = RedisLink(settings.redis)

    async def database_answers() -> None:
        await schema_version.current(database)

    async def schema_is_current() -> None:
        await schema_version.require(database)

    seconds = settings.http.check_seconds
    checks = [
        Check("database", database_answers, seconds=seconds),
        Check("schema", schema_is_current, seconds=seconds),
    ]
    if redis.is_configured:
        checks.append(Check("redis", redis.ping, required=False, seconds=seconds))

    routes: list[BaseRoute] = []
    operations: list[Operation] = []
    path_caps: dict[str, int] = {}
    ingest: Ingest | None = None
    if "ingest" in names:
        ingest = Ingest(settings.ingest, pool=database, redis=redis, master_key=require_master_key(settings))
        routes += ingest_routes.routes(ingest)
        path_caps = ingest_routes.path_caps(ingest)
        operations += ingest_openapi.operations()
    if "readapi" in names:
        routes += route_index.routes(list(routes), public_url=settings.http.public_url)
    routes += api_docs.routes(_document(operations, public_url=settings.http.public_url))
    if "admin" in names:
        routes += status.routes(checks)

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        finally:
            if ingest:
                await ingest.close()
            await database.close()
            await redis.close()

    app = service.application(
        routes,
        checks=checks,
        lifespan=lifespan,
        stop=stop,
        http=settings.http,
        means_unavailable=(errors.StoreError,),
        path_caps=path_caps,
        figures=[functools.partial(queue_figures.read, database)],
    )
    app.add_middleware(RestRoute)  # outermost, so that logs and metrics see the address it stands for
    return app


def _document(operations: Sequence[Operation], *, public_url: str | None) -> dict[str, Any]:
    return openapi.document(
        operations,
        title="Novel service",
        version=metadata.version("novel-service"),
        description="Serial fiction at scale. docs/ingest.md is the guide for whoever writes a crawler.",
        servers=[public_url] if public_url else (),
        security_schemes=ingest_openapi.SECURITY_SCHEMES,
    )


def require_master_key(settings: Settings) -> str:
    """The master key, without which no signature can be checked."""
    if settings.secrets.master_key is None:
        raise Problem(
            "NOVEL_MASTER_KEY is not set, so no ingest signature could be checked. Set it to the master key that the"
            " API keys were made with, or to a new one (openssl rand -base64 48); or serve only readapi or admin."
        )
    return settings.secrets.master_key
