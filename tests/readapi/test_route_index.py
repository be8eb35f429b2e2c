"""The index that WordPress clients discover, asked of a real process over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from readapi import rest_route, route_index
from tests.conftest import MASTER_KEY
from tests.processes import Served, serving

INDEX = ["/wp-json/", "/wp-json", "/?rest_route=/", "/index.php?rest_route=/"]
NAMESPACE = ["/wp-json/novel/v1", "/wp-json/novel/v1/", "/?rest_route=/novel/v1", "/?rest_route=%2Fnovel%2Fv1"]


@pytest.fixture(scope="module")
def served(scratch: Path, migrated_url: str) -> Iterator[Served]:
    with serving(scratch, {"NOVEL_DATABASE_URL": migrated_url, "NOVEL_MASTER_KEY": MASTER_KEY}) as served:
        yield served


@pytest.mark.parametrize("path", INDEX)
def test_the_index_is_what_a_wordpress_client_expects(served: Served, path: str) -> None:
    answer = served.get(path)
    base = f"http://127.0.0.1:{served.port}"
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    index = answer.json()
    assert (index["url"], index["home"]) == (base, base)
    assert index["namespaces"] == ["novel/v1"]
    assert {"name", "description", "gmt_offset", "timezone_string", "authentication"} <= set(index)
    assert index["routes"]["/"]["_links"]["self"] == [{"href": f"{base}/wp-json/"}]
    assert index["routes"]["/novel/v1"]["methods"] == ["GET"]
    assert index["routes"]["/novel/v1"]["namespace"] == "novel/v1"


@pytest.mark.parametrize("path", NAMESPACE)
def test_the_namespace_has_an_index_of_its_own(served: Served, path: str) -> None:
    index = served.get(path).json()
    assert index["namespace"] == "novel/v1"
    assert "/novel/v1" in index["routes"]
    assert "/" not in index["routes"]
    assert index["_links"]["up"] == [{"href": f"http://127.0.0.1:{served.port}/wp-json/"}]


@pytest.mark.parametrize("path", [*INDEX, *NAMESPACE])
def test_the_link_header_leads_to_the_api(served: Served, path: str) -> None:
    link = f'<http://127.0.0.1:{served.port}/wp-json/>; rel="https://api.w.org/"'
    assert served.get(path).headers["link"] == link
    assert served.request("HEAD", path).headers["link"] == link


def test_the_front_page_leads_to_the_api_too(served: Served) -> None:
    assert 'rel="https://api.w.org/"' in served.request("HEAD", "/").headers["link"]


@pytest.mark.parametrize("path", [*INDEX, *NAMESPACE])
def test_head_is_get_without_a_body(served: Served, path: str) -> None:
    got, head = served.get(path), served.request("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(got.body)) == got.headers["content-length"]
    assert head.headers["content-type"] == got.headers["content-type"]


def test_the_host_that_was_asked_is_the_host_in_the_links(served: Served) -> None:
    answer = served.request("GET", "/wp-json/", headers={"Host": "novels.example:8443"})
    assert answer.json()["url"] == "http://novels.example:8443"
    assert answer.headers["link"].startswith("<http://novels.example:8443/wp-json/>;")


def test_a_strange_host_cannot_forge_a_link(served: Served) -> None:
    answer = served.request("GET", "/wp-json/", headers={"Host": 'a>; rel="next", <b'})
    assert answer.status == 200
    assert answer.headers["link"].count("<") == answer.headers["link"].count(">") == 1
    assert 'rel="next"' not in answer.headers["link"]


@pytest.mark.parametrize(
    "path", ["/wp-json/nothing", "/wp-json/novel/v2", "/?rest_route=/nothing", "/?rest_route=/../admin/", "/nothing"]
)
def test_an_unknown_route_is_404_in_both_shapes(served: Served, path: str) -> None:
    answer = served.get(path)
    assert answer.status == 404
    assert answer.headers["content-type"] == "application/json"
    message = "There is nothing at this address."
    assert answer.json() == {
        "error": {"code": "not_found", "message": message},
        "code": "not_found",
        "message": message,
        "data": {"status": 404},
    }


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/wp-json/", "/wp-json/novel/v1", "/?rest_route=/"])
def test_another_method_is_not_allowed_and_the_answer_says_which_are(served: Served, method: str, path: str) -> None:
    answer = served.request(method, path)
    assert answer.status == 405
    assert {word.strip() for word in answer.headers["allow"].split(",")} == {"GET", "HEAD"}
    body = answer.json()
    assert body["error"]["code"] == body["code"] == "method_not_allowed"
    assert body["error"]["message"] == body["message"]
    assert body["data"] == {"status": 405}


def test_an_empty_rest_route_is_the_front_page(served: Served) -> None:
    for path in ("/?rest_route=", "/?rest_route", "/?x=rest_route"):
        assert served.get(path).headers["content-type"].startswith("text/html")


def test_rest_route_means_nothing_elsewhere(served: Served) -> None:
    assert served.get("/healthz?rest_route=/").json() == {"status": "ok"}


# -- the routes of later services in the index -----------------------------------------------------------


async def echo(request: Request) -> Response:
    return Response(json.dumps([request.url.path, request.url.query, dict(request.query_params)]))


API_ROUTES = [
    Route("/wp-json/novel/v1/stories", echo),
    Route("/wp-json/novel/v1/stories/{id:int}", echo),
    Route("/wp-json/novel/v1/stories/{slug}/comments", echo),
    Route("/wp-json/novel/v1/stories/{slug}/comments", echo, methods=["POST"]),
    Route("/docs", echo),
]


async def asked(path: str, *, public_url: str | None = None) -> httpx.Response:
    app = Starlette(routes=[*route_index.routes(API_ROUTES, public_url=public_url), *API_ROUTES])
    app.add_middleware(rest_route.RestRoute)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inner:8080") as client:
        return await client.get(path)


async def test_every_route_is_listed_as_wordpress_would_write_it() -> None:
    routes = (await asked("/wp-json/")).json()["routes"]
    assert {path: entry["methods"] for path, entry in routes.items()} == {
        "/": ["GET"],
        "/novel/v1": ["GET"],
        "/novel/v1/stories": ["GET"],
        r"/novel/v1/stories/(?P<id>[\d]+)": ["GET"],
        "/novel/v1/stories/(?P<slug>[^/]+)/comments": ["GET", "POST"],
    }
    assert routes["/novel/v1/stories"]["_links"]["self"] == [{"href": "http://inner:8080/wp-json/novel/v1/stories"}]
    assert "_links" not in routes[r"/novel/v1/stories/(?P<id>[\d]+)"]
    assert (await asked("/wp-json/novel/v1")).json()["routes"] == {path: routes[path] for path in routes if path != "/"}


async def test_the_public_address_stands_in_every_link() -> None:
    answer = await asked("/wp-json/", public_url="https://novels.example/blog")
    assert "inner" not in answer.text
    assert answer.json()["url"] == "https://novels.example/blog"
    assert answer.headers["link"] == '<https://novels.example/blog/wp-json/>; rel="https://api.w.org/"'


async def test_a_public_address_in_vietnamese_fits_into_the_header() -> None:
    answer = await asked("/wp-json/", public_url="https://truyện.example")
    assert answer.json()["url"] == "https://truyện.example"
    assert answer.headers["link"].startswith("<https://truy%E1%BB%87n.example/wp-json/>;")


@pytest.mark.parametrize(
    ("asked_for", "path", "others"),
    [
        ("/?rest_route=/novel/v1/stories", "/wp-json/novel/v1/stories", {}),
        ("/?rest_route=novel/v1/stories", "/wp-json/novel/v1/stories", {}),
        (
            "/?per_page=2&rest_route=/novel/v1/stories&q=a%26b",
            "/wp-json/novel/v1/stories",
            {"per_page": "2", "q": "a&b"},
        ),
        ("/?rest_route=/nothing&rest_route=/novel/v1/stories", "/wp-json/novel/v1/stories", {}),
        ("/?rest_route=/novel/v1/stories/%C4%91%E1%BA%A5u/comments", "/wp-json/novel/v1/stories/đấu/comments", {}),
    ],
)
async def test_rest_route_stands_for_the_path_and_leaves_the_other_parameters(
    asked_for: str, path: str, others: dict[str, str]
) -> None:
    got_path, _, got_others = json.loads((await asked(asked_for)).text)
    assert (unquote(got_path), got_others) == (path, others)
