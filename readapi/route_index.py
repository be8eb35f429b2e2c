"""The route index that WordPress clients discover: `/wp-json/` and `/wp-json/novel/v1`."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

ROOT = "/wp-json"
NAMESPACE = "novel/v1"
PREFIX = f"{ROOT}/{NAMESPACE}"
# Tells a WordPress client where the API is.
DISCOVERY = "https://api.w.org/"

_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")


def routes(api_routes: Sequence[BaseRoute], *, public_url: str | None) -> list[Route]:
    """The index of these routes, as two routes of its own."""

    async def root(request: Request) -> Response:
        base = base_url(request, public_url)
        return _json(
            {
                "name": "Novel service",
                "description": "Serial fiction at scale",
                "url": base,
                "home": base,
                "gmt_offset": "0",
                "timezone_string": "UTC",
                "namespaces": [NAMESPACE],
                "authentication": {},
                "routes": {"/": _entry("/", ["GET"], "", base)} | _entries(api_routes, base),
            },
            base,
        )

    async def namespace(request: Request) -> Response:
        base = base_url(request, public_url)
        return _json(
            {
                "namespace": NAMESPACE,
                "routes": _entries(api_routes, base),
                "_links": {"up": [{"href": f"{base}{ROOT}/"}]},
            },
            base,
        )

    return [
        Route(f"{ROOT}/", root),
        Route(ROOT, root),
        Route(PREFIX, namespace),
        Route(f"{PREFIX}/", namespace),
    ]


def base_url(request: Request, public_url: str | None) -> str:
    return public_url or f"{request.url.scheme}://{request.url.netloc}"


def wordpress_pattern(path: str) -> str:
    """A route's path as WordPress writes it: `/stories/{id:int}` is `/stories/(?P<id>[\\d]+)`."""

    def group(parameter: re.Match[str]) -> str:
        kind = r"[\d]+" if parameter[2] == "int" else "[^/]+"
        return f"(?P<{parameter[1]}>{kind})"

    return _PARAMETER.sub(group, path)


def _entries(api_routes: Sequence[BaseRoute], base: str) -> dict[str, Any]:
    entries = {f"/{NAMESPACE}": _entry(f"/{NAMESPACE}", ["GET"], NAMESPACE, base)}
    methods: dict[str, set[str]] = {}
    for route in api_routes:
        if isinstance(route, Route) and route.path.startswith(f"{PREFIX}/"):
            path = wordpress_pattern(route.path.removeprefix(ROOT))
            methods.setdefault(path, set()).update((route.methods or set()) - {"HEAD"})
    return entries | {path: _entry(path, sorted(found), NAMESPACE, base) for path, found in methods.items()}


def _entry(path: str, methods: list[str], namespace: str, base: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "namespace": namespace,
        "methods": methods,
        "endpoints": [{"methods": methods, "args": {}}],
    }
    if "(?P<" not in path:
        entry["_links"] = {"self": [{"href": f"{base}{ROOT}{path}"}]}
    return entry


def _json(content: Any, base: str) -> Response:
    # A header holds ASCII alone, and the base may come from the caller's Host.
    link = f'<{quote(base, safe=":/[]")}{ROOT}/>; rel="{DISCOVERY}"'
    headers = {"Link": link, "Cache-Control": "public, max-age=60"}
    return Response(orjson.dumps(content), media_type="application/json; charset=UTF-8", headers=headers)
