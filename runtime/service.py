"""An HTTP process: the routes of one or more services behind the common middleware and health routes."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from runtime import errors, health, loop_watch
from runtime.middleware import AccessLog, BodyCap, PlainAddress, RequestId
from runtime.settings import HttpSettings
from runtime.shutdown import Stop

Lifespan = Callable[[], contextlib.AbstractAsyncContextManager[None]]


def application(
    routes: Sequence[BaseRoute],
    *,
    checks: Sequence[health.Check],
    lifespan: Lifespan,
    stop: Stop,
    http: HttpSettings,
    means_unavailable: Sequence[type[Exception]] = (),
    path_caps: Mapping[str, int] | None = None,
    figures: Sequence[health.Figures] = (),
) -> Starlette:
    """Compose the application. Errors in `means_unavailable` are answered with 503 and Retry-After."""

    @contextlib.asynccontextmanager
    async def whole_life(app: Starlette) -> AsyncIterator[None]:
        async with loop_watch.watching(), lifespan():
            yield

    every_route = [*health.routes(checks, stop=stop, figures=figures), *routes]
    templates: dict[Any, str] = {}
    for route in every_route:
        if isinstance(route, Route):
            templates.setdefault(route.endpoint, route.path)  # of several addresses of one thing the first counts
    proxies = (
        [Middleware(ProxyHeadersMiddleware, trusted_hosts=list(http.trusted_proxies))] if http.trusted_proxies else []
    )
    app = Starlette(
        routes=every_route,
        middleware=[
            Middleware(PlainAddress),
            *proxies,
            Middleware(RequestId),
            Middleware(AccessLog, templates=templates),
            Middleware(BodyCap, max_body_bytes=http.max_body_bytes, path_caps=path_caps),
        ],
        exception_handlers={
            errors.ApiError: errors.answer_api_error,
            HTTPException: errors.answer_http_exception,
            **dict.fromkeys(means_unavailable, errors.answer_unavailable),
        },
        lifespan=whole_life,
    )
    # A redirect to the address with or without a slash would go to whatever host the request names.
    app.router.redirect_slashes = False
    return app
