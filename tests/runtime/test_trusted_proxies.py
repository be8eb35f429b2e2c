"""Who a request comes from, and whether over TLS: by the connection, or by a proxy that the operator trusts."""

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from runtime import service, settings
from runtime.shutdown import Stop
from tests.runtime.conftest import LogLines
from tests.runtime.serving import nothing, route

STRANGER = "203.0.113.9"


async def tell(request: Request) -> Response:
    return JSONResponse([request.client.host if request.client else None, request.url.scheme])


async def seen(trusted: str | None, address: str, *headers: tuple[str, str], scheme: str = "http") -> list[str]:
    """The address and the scheme that a route sees, when a request comes from `address` with these headers."""
    environ = {} if trusted is None else {"NOVEL_TRUSTED_PROXIES": trusted}
    app = service.application(
        [route("/it", tell)], checks=[], lifespan=nothing, stop=Stop(), http=settings.load(environ).http
    )
    transport = httpx.ASGITransport(app, client=(address, 40000))
    async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://novels.example") as client:
        answer = await client.get("/it", headers=list(headers))
    found: list[str] = answer.json()
    return found


def forwarded(*addresses: str) -> tuple[str, str]:
    return "X-Forwarded-For", ", ".join(addresses)


HTTPS = ("X-Forwarded-Proto", "https")


@pytest.mark.parametrize("trusted", [None, "", "10.0.0.7", "10.0.0.0/24", "2001:db8::/32"])
async def test_who_is_not_trusted_is_taken_for_who_it_is(trusted: str | None) -> None:
    for address in (STRANGER, "127.0.0.1", "10.0.1.7", "::1"):
        assert await seen(trusted, address) == [address, "http"]
        assert await seen(trusted, address, forwarded("192.0.2.1"), HTTPS) == [address, "http"]
        assert await seen(trusted, address, forwarded("10.0.0.7"), HTTPS) == [address, "http"]
        assert await seen(trusted, address, HTTPS, scheme="https") == [address, "https"]


@pytest.mark.parametrize("trusted", ["10.0.0.7", "10.0.0.0/24", "192.0.2.0/24, 10.0.0.7"])
async def test_a_trusted_proxy_is_believed(trusted: str) -> None:
    assert await seen(trusted, "10.0.0.7") == ["10.0.0.7", "http"]
    assert await seen(trusted, "10.0.0.7", forwarded(STRANGER)) == [STRANGER, "http"]
    assert await seen(trusted, "10.0.0.7", forwarded(STRANGER), HTTPS) == [STRANGER, "https"]
    assert await seen(trusted, "10.0.0.7", HTTPS) == ["10.0.0.7", "https"]
    assert await seen(trusted, "10.0.0.7", ("X-Forwarded-Proto", "http"), scheme="https") == ["10.0.0.7", "http"]


async def test_a_proxy_may_have_an_ipv6_address() -> None:
    assert await seen("2001:db8::/64", "2001:0db8:0:0::7", forwarded("2001:db8:5::1"), HTTPS) == [
        "2001:db8:5::1",
        "https",
    ]


async def test_the_last_address_that_is_no_proxy_is_the_client() -> None:
    """A proxy adds whom it saw at the end. What stands before that is whatever the client has written."""
    proxies = "10.0.0.0/24"
    assert await seen(proxies, "10.0.0.7", forwarded("127.0.0.1", STRANGER)) == [STRANGER, "http"]
    assert await seen(proxies, "10.0.0.7", forwarded("127.0.0.1", STRANGER, "10.0.0.8")) == [STRANGER, "http"]
    assert await seen(proxies, "10.0.0.7", forwarded("10.0.0.9", STRANGER)) == [STRANGER, "http"]


async def test_several_headers_are_read_as_one() -> None:
    headers = forwarded("127.0.0.1"), forwarded(STRANGER), forwarded("10.0.0.8")
    assert await seen("10.0.0.0/24", "10.0.0.7", *headers) == [STRANGER, "http"]


async def test_a_port_beside_an_address_is_left_out() -> None:
    assert await seen("10.0.0.7", "10.0.0.7", forwarded(f"{STRANGER}:4711")) == [STRANGER, "http"]
    assert await seen("10.0.0.7", "10.0.0.7", forwarded("[2001:db8::1]:4711")) == ["2001:db8::1", "http"]


@pytest.mark.parametrize("proto", ["", "HTTPS", "https, http", "http, https", "gopher", "https\t;"])
async def test_a_scheme_that_is_not_one_word_is_not_believed(proto: str) -> None:
    assert await seen("10.0.0.7", "10.0.0.7", ("X-Forwarded-Proto", proto)) == ["10.0.0.7", "http"]


@pytest.mark.parametrize("value", ["", " ", ","])
async def test_an_empty_list_of_addresses_leaves_the_proxy(value: str) -> None:
    assert await seen("10.0.0.7", "10.0.0.7", ("X-Forwarded-For", value)) == ["10.0.0.7", "http"]


@pytest.mark.parametrize("trusted", ["10.0.0.7", "10.0.0.0/24"])
async def test_a_proxy_is_known_on_a_socket_for_both_protocols_too(trusted: str) -> None:
    """There an IPv4 address looks like this."""
    assert await seen(trusted, "::ffff:10.0.0.7", forwarded(STRANGER), HTTPS) == [STRANGER, "https"]
    assert (await seen(trusted, f"::ffff:{STRANGER}", forwarded("192.0.2.1"), HTTPS))[1] == "http"


async def test_the_log_names_the_client_and_not_the_proxy(log_lines: LogLines) -> None:
    await seen("10.0.0.7", "10.0.0.7", forwarded(STRANGER), HTTPS)
    assert log_lines.one("http.answered")["client"] == STRANGER


async def test_the_log_names_the_peer_where_it_is_not_trusted(log_lines: LogLines) -> None:
    await seen("10.0.0.7", STRANGER, forwarded("10.0.0.7"), HTTPS)
    assert log_lines.one("http.answered")["client"] == STRANGER
