"""`/?rest_route=/novel/v1/...`: the address of the API on WordPress sites without pretty permalinks."""

from urllib.parse import parse_qsl, quote, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from readapi.route_index import ROOT

PARAMETER = "rest_route"
FRONT_PAGES = ("/", "/index.php")


class RestRoute:
    """Hands such a request on as if it had been made to `/wp-json/novel/v1/...`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in FRONT_PAGES and PARAMETER.encode() in scope["query_string"]:
            scope = translated(scope)
        await self.app(scope, receive, send)


def translated(scope: Scope) -> Scope:
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    route = dict(pairs).get(PARAMETER)  # the last one counts, as in PHP
    if not route:
        return scope
    path = f"{ROOT}/{route.removeprefix('/')}"
    others = [(name, value) for name, value in pairs if name != PARAMETER]
    return {**scope, "path": path, "raw_path": quote(path).encode(), "query_string": urlencode(others).encode()}
