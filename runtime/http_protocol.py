"""uvicorn's HTTP/1.1 protocol, with bounds: nobody holds memory or a connection without asking something we can answer.

uvicorn bounds the body that it keeps, but neither the head of a request, nor trailers, nor the requests that one
connection piles up unanswered, nor the time all this may take. A refusal has the one error body.
"""

import asyncio
import functools
import resource
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from runtime import errors, logs

log = logs.get(__name__)

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 200
MAX_PIPELINED = 16
# From the connection, or from the first byte of a further request, to the end of its head.
HEAD_SECONDS = 20.0
# Between two pieces of a body that we are ready to read.
BODY_SECONDS = 30.0
# For the database, Redis, logs and what else the process opens.
RESERVED_FILES = 100


class BadRequest(errors.ApiError):
    """This is not a request that the server understands."""

    status, code = 400, "bad_request"


class HeadTooLarge(errors.ApiError):
    """The head of the request is larger than the server reads."""

    status, code = 431, "request_header_fields_too_large"


class TooSlow(errors.ApiError):
    """The request took too long to arrive."""

    status, code = 408, "request_timeout"


class BoundedProtocol(HttpToolsProtocol):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._has_head = False
        self._unused_bytes = 0
        """Bytes since the last that led anywhere: the end of a head, a piece of a body, the end of a request."""
        self._timer: asyncio.TimerHandle | None = None
        self._patience: float | None = None
        """How long to wait for what has to come next; None: nothing has to."""
        self._pieces: list[bytes] = []
        """Of a body, from one read: a body of one-byte chunks would cost a copy and a timer for each byte."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > max_connections():
            log.warning("http.connection_refused", connections=len(self.connections))
            transport.abort()
            return
        self._patience = HEAD_SECONDS
        self._expect(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unused_bytes += len(data)
        super().data_received(data)
        self._pass_on()
        if not self.transport.is_closing():
            self._expect(self._patience)
        if self._unused_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HeadTooLarge())

    def on_message_begin(self) -> None:
        self._has_head = False
        self._patience = HEAD_SECONDS
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # a trailer: it may not pass for a header that a proxy in front of us has set
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests wait on this connection")
        self._has_head = True
        self._unused_bytes = 0
        self._patience = BODY_SECONDS
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unused_bytes = 0
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._unused_bytes = 0
        self._patience = None
        self._pass_on()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest())

    def _pass_on(self) -> None:
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            super().on_body(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _expect(self, seconds: float | None) -> None:
        """Something has to come within that time; None: nothing has to."""
        if self._timer:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.flow.read_paused:
            self._expect(BODY_SECONDS)  # the client may be sending: it is we who do not read
        elif self._has_head:
            self.transport.abort()  # whoever handles the request learns that the client is gone
        else:
            self._refuse(TooSlow())

    def _refuse(self, error: errors.ApiError) -> None:
        self._expect(None)
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer is under way: nothing can be put between
            return
        content = errors.body(error)
        self.transport.write(
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n".encode()
            + content
        )
        self.transport.close()


@functools.cache
def max_connections() -> int:
    """As many as the process may have files open, less those that it needs itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(10, soft - RESERVED_FILES)
