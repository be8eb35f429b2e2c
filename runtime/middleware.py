"""What surrounds every HTTP request, in pure ASGI: its id, its log line and metrics, and a cap on its body."""

import asyncio
import contextlib
import ipaddress
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime import errors, logs, metrics

log = logs.get(__name__)

REQUEST_ID_HEADER = "x-request-id"
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Asked for every few seconds by machines: their lines would bury the others.
_QUIET_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
LINGER_SECONDS = 30.0


class RequestId:
    """Gives every request an id: the caller's if it is well-formed, else a new one. It is on each log line."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = _header(scope, REQUEST_ID_HEADER.encode())
        request_id = given.decode() if given and _ACCEPTED_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with logs.bound(request_id=request_id):
            return await self.app(scope, receive, send_with_id)


class PlainAddress:
    """A socket for both protocols shows an IPv4 client as ::ffff:192.0.2.7: here it is 192.0.2.7 again."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (client := scope.get("client")) and client[0].startswith("::ffff:"):
            mapped = ipaddress.IPv6Address(client[0]).ipv4_mapped
            scope["client"] = (str(mapped or client[0]), client[1])
        await self.app(scope, receive, send)


class AccessLog:
    """One log line and one measurement per request. An unforeseen failure becomes the one error body here."""

    def __init__(self, app: ASGIApp, *, templates: Mapping[Any, str]) -> None:
        self.app = app
        self.templates = templates
        """The route template of each endpoint. Metrics never carry the path itself: labels must be few."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        status = 0
        sent_bytes = 0

        async def watch(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except asyncio.CancelledError:  # the server stops, and this request has had its time to finish
            if not status:
                await errors.response(errors.Unavailable())(scope, receive, watch)
        except ClientDisconnect:
            pass  # it left before its request was whole: nobody is there to answer, and nothing of ours failed
        except Exception:  # the last place that can answer: log it whole, tell the client nothing inner
            log.exception("http.failed", method=scope["method"], path=scope["path"])
            if status:
                raise  # half an answer is out: only closing the connection tells the client
            await errors.response(errors.InternalError())(scope, receive, watch)
        finally:
            seconds = time.perf_counter() - started
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            route = self.templates.get(scope.get("endpoint"), "unmatched")
            metrics.HTTP_REQUESTS.labels(method, route, str(status or 499)).inc()
            metrics.HTTP_SECONDS.labels(route).observe(seconds)
            if scope["path"] not in _QUIET_PATHS:
                log.info(
                    "http.answered" if status else "http.abandoned",
                    method=method,
                    path=scope["path"],
                    status=status,
                    seconds=round(seconds, 6),
                    body_bytes=sent_bytes,
                    client=(scope.get("client") or ("",))[0],
                )


class BodyCap:
    """Refuses a body over the cap: by its declared length before reading, else while it arrives.

    After the refusal, what the client still sends is read and thrown away for a while: closing on unread bytes would
    reset the connection, and a client in the middle of sending would never see why.
    """

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, path_caps: Mapping[str, int] | None = None) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.path_caps = path_caps or {}
        """Paths with a lower cap of their own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        cap = min(self.max_body_bytes, self.path_caps.get(scope["path"], self.max_body_bytes))
        too_large = errors.PayloadTooLarge(
            f"The request body is larger than {cap} bytes.", headers={"Connection": "close"}
        )
        read_bytes = 0
        refused = has_ended = False

        async def counted() -> Message:
            nonlocal read_bytes, refused, has_ended
            message = await receive()
            has_ended = not message.get("more_body", False)
            if message["type"] == "http.request":
                read_bytes += len(message.get("body", b""))
                if read_bytes > cap:
                    refused = True
                    raise too_large
            return message

        async def send_and_linger(message: Message) -> None:
            if refused and message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                if not has_ended:
                    await _discard_body(receive)
                message = {"type": "http.response.body"}
            await send(message)

        declared = _header(scope, b"content-length")
        if declared and declared.isdigit() and _is_over(declared, cap):
            refused = True
            return await errors.response(too_large)(scope, receive, send_and_linger)
        return await self.app(scope, counted, send_and_linger)


def _is_over(digits: bytes, cap: int) -> bool:
    digits = digits.lstrip(b"0")
    return len(digits) > 19 or int(digits or b"0") > cap  # a number of thousands of digits would be an error


async def _discard_body(receive: Receive) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body", False):
                pass


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)
