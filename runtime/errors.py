"""The one error body, and the errors that any HTTP service can answer with.

An error carries both shapes, so that the specification's clients and generic WordPress clients understand it:
`{"error": {"code", "message", "details"}, "code", "message", "data": {"status"}}`.
Services add their own errors by deriving from `ApiError`; the docstring is the public message.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from runtime import logs

log = logs.get(__name__)


class ApiError(Exception):
    """The server could not do this. Try again later."""

    status = 500
    code = "internal_error"

    def __init__(
        self, message: str | None = None, *, details: Any = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").partition("\n")[0]
        self.details = details
        self.headers = dict(headers or {})
        super().__init__(self.message)


class InternalError(ApiError):
    """Something went wrong on our side. Try again later, and quote the request id if it happens again."""


class NotFound(ApiError):
    """There is nothing at this address."""

    status, code = 404, "not_found"


class MethodNotAllowed(ApiError):
    """This address does not take that method."""

    status, code = 405, "method_not_allowed"


class PayloadTooLarge(ApiError):
    """The request body is larger than this address accepts."""

    status, code = 413, "payload_too_large"


class Unavailable(ApiError):
    """The service cannot answer right now. Try again in a moment."""

    status, code = 503, "unavailable"

    def __init__(self, message: str | None = None, *, details: Any = None, retry_after_seconds: int = 2) -> None:
        super().__init__(message, details=details, headers={"Retry-After": str(retry_after_seconds)})


def body(error: ApiError) -> bytes:
    inner: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.details is not None:
        inner["details"] = error.details
    return orjson.dumps(
        {"error": inner, "code": error.code, "message": error.message, "data": {"status": error.status}}
    )


def response(error: ApiError) -> Response:
    return Response(body(error), error.status, headers=error.headers, media_type="application/json")


async def answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return response(error)


async def answer_unavailable(request: Request, error: Exception) -> Response:
    """What we stand on is away for a moment. Say so, log why, and keep the inner words to ourselves."""
    log.warning("http.unavailable", error=repr(error))
    return response(Unavailable())


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own refusals (no route, wrong method) in our shape."""
    assert isinstance(error, HTTPException)
    known: dict[int, type[ApiError]] = {404: NotFound, 405: MethodNotAllowed, 413: PayloadTooLarge}
    answer = known.get(error.status_code, ApiError)(headers=error.headers)
    if type(answer) is ApiError:
        answer.status, answer.code, answer.message = error.status_code, "http_error", str(error.detail)
    return response(answer)
