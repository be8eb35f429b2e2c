"""Puts services together into one HTTP application: the only place that knows all of them."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from admin import status
from readapi import route_index
from readapi.rest_route import RestRoute
from runtime import service
from runtime.health import Check
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
    if "readapi" in names:
        routes += route_index.routes(list(routes), public_url=settings.http.public_url)
    if "admin" in names:
        routes += status.routes(checks)

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await database.close()
            await redis.close()

    app = service.application(
        routes,
        checks=checks,
        lifespan=lifespan,
        stop=stop,
        http=settings.http,
        means_unavailable=(errors.StoreError,),
    )
    app.add_middleware(RestRoute)  # outermost, so that logs and metrics see the address it stands for
    return app
