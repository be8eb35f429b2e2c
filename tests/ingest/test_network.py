"""Where a request comes from: TLS, proxies, the allowlist, and the rate of one address."""

import contextlib
import ipaddress
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from cli import compose
from runtime import settings
from runtime.shutdown import Stop
from schema.connection import Connection
from tests.ingest.client import CHAPTERS, Crawler, batch, chapter, refusal
from tests.ingest.conftest import UNLIMITED, MakeKey, ServeWith, written

BODY = batch(chapter(1))
ACCEPTED = (202, None)
HTTPS_REQUIRED = (403, "https_required")
NOT_ALLOWED = (403, "address_not_allowed")
RATE_LIMITED = (429, "rate_limited")

LOCAL = "127.0.0.1"
PROXY = "10.0.0.7"
STRANGER = "203.0.113.9"
HTTPS = {"X-Forwarded-Proto": "https"}


class Application:
    """The ingest API in this process, where a request can come from any address."""

    def __init__(self, app: Any, crawler: Crawler) -> None:
        self._app = app
        self._crawler = crawler

    async def send(
        self, address: str, headers: dict[str, str] | None = None, *, scheme: str = "http"
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, client=(address, 40000))
        async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://novels.example") as client:
            signed = self._crawler.headers("POST", CHAPTERS, BODY)
            return await client.post(CHAPTERS, content=BODY, headers=signed | (headers or {}))

    async def push(
        self, address: str, headers: dict[str, str] | None = None, *, scheme: str = "http"
    ) -> tuple[int, str | None]:
        answer = await self.send(address, headers, scheme=scheme)
        return answer.status_code, answer.json().get("code")


MakeApplication = Callable[..., Awaitable[Application]]


@pytest.fixture
async def make_application(environ: dict[str, str], make_key: MakeKey) -> AsyncIterator[MakeApplication]:
    async with contextlib.AsyncExitStack() as stack:
        crawler = Crawler(0, *make_key())

        async def make(**variables: str) -> Application:
            loaded = settings.load(environ | UNLIMITED | variables)
            app = compose.application(loaded, ["ingest"], stop=Stop())
            await stack.enter_async_context(app.router.lifespan_context(app))
            return Application(app, crawler)

        yield make


# -- TLS ------------------------------------------------------------------------------------------------


TLS_CASES: list[tuple[str, dict[str, str], tuple[int, str | None]]] = [
    (LOCAL, {}, ACCEPTED),
    ("::1", {}, ACCEPTED),
    ("127.8.9.1", {}, ACCEPTED),
    (STRANGER, {}, HTTPS_REQUIRED),
    ("2001:db8::9", {}, HTTPS_REQUIRED),
    ("", {}, HTTPS_REQUIRED),
    (PROXY, HTTPS, ACCEPTED),
    (PROXY, HTTPS | {"X-Forwarded-For": STRANGER}, ACCEPTED),
    (PROXY, {"X-Forwarded-Proto": "http"}, HTTPS_REQUIRED),
    (PROXY, {"X-Forwarded-Proto": "http", "X-Forwarded-For": LOCAL}, HTTPS_REQUIRED),
    (PROXY, {"X-Forwarded-Proto": "https, http"}, HTTPS_REQUIRED),
    (PROXY, {"X-Forwarded-Proto": "HTTP"}, HTTPS_REQUIRED),
    (PROXY, {"X-Forwarded-Proto": "spdy"}, HTTPS_REQUIRED),
    (PROXY, {"X-Forwarded-Proto": ""}, HTTPS_REQUIRED),
    (PROXY, {"X-Forwarded-For": LOCAL}, HTTPS_REQUIRED),
    (PROXY, {"Forwarded": "for=127.0.0.1;proto=https"}, HTTPS_REQUIRED),
    (PROXY, {}, HTTPS_REQUIRED),
    (STRANGER, HTTPS, HTTPS_REQUIRED),
    (STRANGER, HTTPS | {"X-Forwarded-For": LOCAL}, HTTPS_REQUIRED),
    (STRANGER, {"X-Forwarded-For": LOCAL}, HTTPS_REQUIRED),
    (LOCAL, HTTPS, HTTPS_REQUIRED),
    (LOCAL, {"Forwarded": "proto=https"}, HTTPS_REQUIRED),
]


async def test_plain_http_is_refused_unless_it_never_left_the_machine_or_a_trusted_proxy_says_https(
    make_application: MakeApplication, conn: Connection
) -> None:
    application = await make_application(NOVEL_TRUSTED_PROXIES=f"{PROXY}/32")
    for address, headers, expected in TLS_CASES:
        before = written(conn)
        assert await application.push(address, headers) == expected, (address, headers)
        assert (written(conn) != before) == (expected == ACCEPTED)


async def test_without_trusted_proxies_nobody_is_believed(make_application: MakeApplication, conn: Connection) -> None:
    application = await make_application()
    for headers in (HTTPS, HTTPS | {"X-Forwarded-For": LOCAL}, {"X-Forwarded-For": LOCAL}):
        for address in (LOCAL, PROXY, STRANGER):
            assert await application.push(address, headers) == HTTPS_REQUIRED
    assert written(conn) == {}


async def test_tls_of_our_own_is_enough(make_application: MakeApplication) -> None:
    application = await make_application()
    assert await application.push(STRANGER, scheme="https") == ACCEPTED


async def test_plain_http_can_be_allowed(make_application: MakeApplication) -> None:
    application = await make_application(NOVEL_INGEST_REQUIRE_TLS="off", NOVEL_TRUSTED_PROXIES=PROXY)
    assert await application.push(STRANGER) == ACCEPTED
    assert await application.push(STRANGER, HTTPS) == ACCEPTED
    assert await application.push(PROXY, {"X-Forwarded-Proto": "http"}) == ACCEPTED


async def test_a_client_of_this_machine_is_one_on_a_socket_for_both_protocols_too(
    make_application: MakeApplication,
) -> None:
    """There an IPv4 address looks like this."""
    application = await make_application()
    assert await application.push("::ffff:127.0.0.1") == ACCEPTED
    assert await application.push(f"::ffff:{STRANGER}") == HTTPS_REQUIRED


def test_a_real_proxy_on_this_machine_passes_https_on(serve_with: ServeWith, make_key: MakeKey) -> None:
    crawler = Crawler(serve_with(NOVEL_TRUSTED_PROXIES=LOCAL).port, *make_key())
    crawler.more_headers = HTTPS | {"X-Forwarded-For": STRANGER}
    assert crawler.push(chapter()).status == 202
    crawler.more_headers = {"X-Forwarded-Proto": "http", "X-Forwarded-For": STRANGER}
    assert refusal(crawler.push(chapter())) == HTTPS_REQUIRED


def test_a_host_or_query_that_nobody_can_read_is_no_error_of_ours(serve_with: ServeWith, make_key: MakeKey) -> None:
    crawler = Crawler(serve_with(NOVEL_TRUSTED_PROXIES=LOCAL).port, *make_key())
    for host, query in (("[", ""), ("a b:c:d", ""), ("x", "?%ff=%00"), ("x", "?" + "&" * 1000)):
        signed = crawler.headers("POST", CHAPTERS, BODY) | {"Host": host}
        assert crawler.send("POST", CHAPTERS + query, BODY, signed).status == 202


# -- allowlist ------------------------------------------------------------------------------------------

ALLOWED = "192.0.2.0/25, 2001:db8:5::/48,203.0.113.77"


ALLOWLIST_CASES: list[tuple[str, str | None, tuple[int, str | None]]] = [
    ("192.0.2.1", None, ACCEPTED),
    ("192.0.2.127", None, ACCEPTED),
    ("192.0.2.128", None, NOT_ALLOWED),
    ("203.0.113.77", None, ACCEPTED),
    ("203.0.113.78", None, NOT_ALLOWED),
    ("2001:db8:5::1", None, ACCEPTED),
    ("2001:db8:6::1", None, NOT_ALLOWED),
    ("::ffff:192.0.2.1", None, ACCEPTED),
    ("::ffff:192.0.2.200", None, NOT_ALLOWED),
    (LOCAL, None, NOT_ALLOWED),
    ("", None, NOT_ALLOWED),
    ("somewhere", None, NOT_ALLOWED),
    # What a peer says of others counts only if the peer is a trusted proxy.
    (STRANGER, "192.0.2.1", NOT_ALLOWED),
    ("192.0.2.1", STRANGER, ACCEPTED),
    (PROXY, None, NOT_ALLOWED),
    (PROXY, "192.0.2.1", ACCEPTED),
    (PROXY, "192.0.2.1:4711", ACCEPTED),
    (PROXY, "::ffff:192.0.2.1", ACCEPTED),
    (PROXY, "[2001:db8:5::1]:4711", ACCEPTED),
    (PROXY, STRANGER, NOT_ALLOWED),
    # The proxy adds whom it saw at the end; what stands before that is what the client said.
    (PROXY, f"192.0.2.1, {STRANGER}", NOT_ALLOWED),
    (PROXY, f"{STRANGER}, 192.0.2.1", ACCEPTED),
    (PROXY, f"{STRANGER}, 192.0.2.1, 10.0.0.8", ACCEPTED),
    (PROXY, f"192.0.2.1, {STRANGER}, 10.0.0.8, 10.0.0.9", NOT_ALLOWED),
    (PROXY, "192.0.2.1, nonsense", NOT_ALLOWED),
    (PROXY, "", NOT_ALLOWED),
    (PROXY, "192.0.2.1,", NOT_ALLOWED),
]


async def test_only_addresses_on_the_list_may_push(make_application: MakeApplication, conn: Connection) -> None:
    application = await make_application(
        NOVEL_INGEST_ALLOWED_ADDRESSES=ALLOWED,
        NOVEL_TRUSTED_PROXIES="10.0.0.0/24",
        NOVEL_INGEST_REQUIRE_TLS="off",
    )
    for address, forwarded_for, expected in ALLOWLIST_CASES:
        before = written(conn)
        headers = {} if forwarded_for is None else {"X-Forwarded-For": forwarded_for}
        assert await application.push(address, headers) == expected, (address, forwarded_for)
        assert (written(conn) != before) == (expected == ACCEPTED)


async def test_without_a_list_every_address_may_push(make_application: MakeApplication) -> None:
    application = await make_application()
    for address in (STRANGER, "2001:db8::9"):
        assert await application.push(address, scheme="https") == ACCEPTED


# -- rate of an address ---------------------------------------------------------------------------------


def any_address() -> str:
    """One that no other test has used: Redis remembers them all."""
    return str(ipaddress.IPv6Address((0x20010DB8 << 96) + secrets.randbits(96)))


@pytest.mark.parametrize("redis", [{}, {"NOVEL_REDIS_URL": ""}], ids=["redis", "process"])
async def test_an_address_may_ask_only_so_often_with_whatever_headers(
    make_application: MakeApplication, redis: dict[str, str]
) -> None:
    application = await make_application(NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE="3", **redis)
    address, other = any_address(), any_address()
    assert await application.push(address, scheme="https") == ACCEPTED
    assert (await application.push(address, {"X-Novel-Signature": "0" * 64}, scheme="https"))[0] == 401
    assert (await application.push(address, {"X-Novel-Timestamp": "1"}, scheme="https"))[0] == 401
    refused = await application.send(address, scheme="https")
    assert (refused.status_code, refused.json()["code"]) == RATE_LIMITED
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert await application.push(other, scheme="https") == ACCEPTED


async def test_the_rate_is_that_of_the_client_and_not_of_the_proxy(make_application: MakeApplication) -> None:
    application = await make_application(
        NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE="1", NOVEL_TRUSTED_PROXIES="10.0.0.0/24"
    )
    first, second = (HTTPS | {"X-Forwarded-For": any_address()} for _ in range(2))
    for headers in (first, second):
        assert await application.push(PROXY, headers) == ACCEPTED
        assert await application.push(PROXY, headers) == RATE_LIMITED
