"""The one error body: both shapes, the same for what we refuse, what Starlette refuses, and what nobody foresaw."""

from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from runtime import errors
from runtime.errors import ApiError
from tests.runtime.conftest import LogLines
from tests.runtime.serving import answer_ok, application, client, route

pytestmark = pytest.mark.anyio


class OutOfPaper(ApiError):
    """There is no paper left. Bring some.

    This is for programmers.
    """

    status, code = 418, "out_of_paper"


def raising(error: Exception) -> Any:
    async def endpoint(request: Request) -> Response:
        raise error

    return application(route("/it", endpoint), means_unavailable=(ConnectionError,))


def shape(status: int, code: str, message: str) -> dict[str, Any]:
    return {
        "error": {"code": code, "message": message},
        "code": code,
        "message": message,
        "data": {"status": status},
    }


async def test_an_error_has_both_shapes_and_its_docstring_is_the_message() -> None:
    answer = await client(raising(OutOfPaper())).get("/it")
    assert answer.status_code == 418
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == shape(418, "out_of_paper", "There is no paper left. Bring some.")


async def test_details_message_and_headers_are_the_raisers_choice() -> None:
    error = OutOfPaper("No A4.", details={"tray": 2}, headers={"X-Tray": "2"})
    answer = await client(raising(error)).get("/it")
    assert answer.json()["error"] == {"code": "out_of_paper", "message": "No A4.", "details": {"tray": 2}}
    assert answer.json()["message"] == "No A4."
    assert answer.headers["x-tray"] == "2"


async def test_empty_details_are_not_missing_details() -> None:
    answer = await client(raising(OutOfPaper(details=[]))).get("/it")
    assert answer.json()["error"]["details"] == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InternalError, 500, "internal_error"),
        (errors.NotFound, 404, "not_found"),
        (errors.MethodNotAllowed, 405, "method_not_allowed"),
        (errors.PayloadTooLarge, 413, "payload_too_large"),
        (errors.Unavailable, 503, "unavailable"),
    ],
)
async def test_every_common_error_has_its_status_and_code(error: type[ApiError], status: int, code: str) -> None:
    answer = await client(raising(error())).get("/it")
    assert answer.status_code == status
    assert answer.json() == shape(status, code, error().message)
    assert error().message.endswith(".")


async def test_unavailable_says_when_to_try_again() -> None:
    answer = await client(raising(errors.Unavailable(retry_after_seconds=7))).get("/it")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")


async def test_a_failure_that_means_unavailable_is_answered_with_503_and_logged(log_lines: LogLines) -> None:
    answer = await client(raising(ConnectionRefusedError("db.internal:3306"))).get("/it")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json() == shape(503, "unavailable", errors.Unavailable().message)
    assert "db.internal" not in answer.text
    assert "db.internal" in log_lines.one("http.unavailable")["error"]
    assert log_lines.of("http.failed") == []


async def test_an_unforeseen_failure_is_a_500_that_tells_nothing_inner(log_lines: LogLines) -> None:
    answer = await client(raising(RuntimeError("SELECT inner FROM secrets"))).get("/it")
    assert answer.status_code == 500
    assert answer.json() == shape(500, "internal_error", errors.InternalError().message)
    assert answer.headers["x-request-id"] == log_lines.one("http.failed")["request_id"]
    assert "SELECT inner" in log_lines.one("http.failed")["exception"]


async def test_an_unknown_address_is_a_404_in_our_shape() -> None:
    answer = await client(application()).get("/nowhere")
    assert answer.status_code == 404
    assert answer.json() == shape(404, "not_found", "There is nothing at this address.")


async def test_a_wrong_method_is_a_405_in_our_shape_that_names_the_right_ones() -> None:
    answer = await client(application(route("/it", answer_ok, "GET"))).delete("/it")
    assert answer.status_code == 405
    assert answer.json() == shape(405, "method_not_allowed", "This address does not take that method.")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_another_refusal_of_starlette_keeps_its_status_words_and_headers() -> None:
    error = HTTPException(401, "Log in first.", headers={"WWW-Authenticate": "Bearer"})
    answer = await client(raising(error)).get("/it")
    assert answer.status_code == 401
    assert answer.json() == shape(401, "http_error", "Log in first.")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_one_refusal_of_starlette_does_not_colour_the_next() -> None:
    await client(raising(HTTPException(401, "Log in first."))).get("/it")
    assert (ApiError.status, ApiError.code) == (500, "internal_error")
    assert ApiError().message == "The server could not do this. Try again later."
