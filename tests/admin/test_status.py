"""The status page: what a person and a browser get, from a real process and with checks that fail."""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from admin import status
from runtime.health import Check
from tests.processes import Served, serving

PAGES = ["/", "/admin/"]
MASTER_KEY = "a master key that no page may show"


@pytest.fixture(scope="module")
def served(scratch: Path, migrated_url: str, redis_url: str) -> Iterator[Served]:
    variables = {
        "NOVEL_DATABASE_URL": migrated_url,
        "NOVEL_REDIS_URL": redis_url,
        "NOVEL_MASTER_KEY": MASTER_KEY,
    }
    with serving(scratch, variables, "admin") as served:
        yield served


@pytest.mark.parametrize("path", PAGES)
def test_the_page_says_that_all_is_well(served: Served, path: str) -> None:
    answer = served.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.body.decode()
    assert page.startswith("<!doctype html>")
    assert f"Version {metadata.version('novel-service')}." in page
    assert "Everything it needs is there." in page
    for name in ("database", "schema", "redis"):
        assert f'<tr><td>{name}</td><td><span class="good">answers</span></td></tr>' in page


def test_the_page_without_its_slash_leads_to_the_one_with_it(served: Served) -> None:
    answer = served.get("/admin")
    assert answer.status == 308
    assert answer.headers["location"] == "/admin/"


@pytest.mark.parametrize("path", PAGES)
def test_a_browser_is_told_to_trust_nothing_but_the_page(served: Served, path: str) -> None:
    answer = served.get(path)
    policy = dict(part.split(maxsplit=1) for part in answer.headers["content-security-policy"].split(";"))
    nonce = policy.pop("style-src").removeprefix("'nonce-").removesuffix("'")
    assert policy == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    assert re.findall(r"<(?:style|script)[^>]*>", answer.body.decode()) == [f'<style nonce="{nonce}">']
    assert " style=" not in answer.body.decode()
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers


def test_each_answer_has_a_nonce_of_its_own(served: Served) -> None:
    policies = {served.get("/admin/").headers["content-security-policy"] for _ in range(5)}
    assert len(policies) == 5


def test_the_page_loads_nothing_from_elsewhere(served: Served) -> None:
    page = served.get("/admin/").body.decode()
    assert set(re.findall(r'(?:href|src)="([^"]*)"', page)) == {"/wp-json/", "/healthz", "/readyz", "/metrics"}


def test_head_is_answered_and_other_methods_are_not(served: Served) -> None:
    head = served.request("HEAD", "/admin/")
    assert (head.status, head.body) == (200, b"")
    refused = served.request("POST", "/admin/")
    assert refused.status == 405
    assert refused.json()["code"] == "method_not_allowed"


def test_no_secret_and_no_address_is_shown(served: Served, migrated_url: str, redis_url: str) -> None:
    shown = "".join(served.get(path).body.decode() for path in (*PAGES, "/readyz", "/healthz", "/metrics"))
    database_password = migrated_url.partition("@")[0].rpartition(":")[2]
    redis_password = redis_url.partition("@")[0].rpartition(":")[2]
    for secret in (MASTER_KEY, database_password, redis_password, migrated_url.partition("@")[2]):
        assert secret not in shown
        assert secret not in served.said()


# -- with checks that fail -------------------------------------------------------------------------------


async def page(*checks: Check) -> str:
    app = Starlette(routes=status.routes(checks))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.get("/admin/")
    assert answer.status_code == 200
    return answer.text


async def well() -> None:
    pass


async def ill() -> None:
    raise RuntimeError("the password is hush")


async def test_what_does_not_answer_is_named_and_why_stays_inside() -> None:
    shown = await page(Check("database", ill), Check("redis", ill, required=False), Check("schema", well))
    assert '<tr><td>database</td><td><span class="bad">does not answer</span></td></tr>' in shown
    assert '<tr><td>redis</td><td><span class="bad">does not answer</span> (not required)</td></tr>' in shown
    assert '<tr><td>schema</td><td><span class="good">answers</span></td></tr>' in shown
    assert "Something it uses is missing" in shown
    assert "hush" not in shown


async def test_what_is_shown_is_escaped() -> None:
    shown = await page(Check("<script>alert('x')</script>&\"", well))
    assert "<script" not in shown
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&#34;" in shown
