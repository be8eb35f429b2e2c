"""The served OpenAPI document against the server itself: what it declares is sent, and what it declares comes back."""

import gzip
import hashlib
import time
import uuid
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import schemathesis
import zstandard
from hypothesis import HealthCheck, Phase, given, settings
from requests.auth import AuthBase
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ingest import openapi, signature
from ingest.routes import REBUILD_STATS
from schema.connection import Connection
from tests.ingest.client import CHAPTERS, STORIES, Crawler, chapter, story
from tests.ingest.conftest import MakeCrawler, ServeWith, assert_nothing_is_half_written
from tests.processes import HOST, Served

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
OPERATIONS = [(operation.method, operation.path) for operation in openapi.operations()]
COMPRESSORS = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}

bounded = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Signed(AuthBase):
    """Signs what is about to be sent, with its body as it will be sent."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    def __call__(self, request: Any) -> Any:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        if compress := COMPRESSORS.get(request.headers.get("Content-Encoding", "")):
            body = compress(body)
            request.prepare_body(body, None)
        stamp, nonce = str(int(time.time())), uuid.uuid4().hex
        signed = signature.sign(
            self._crawler.secret,
            method=request.method,
            path=unquote(urlsplit(request.url).path),
            timestamp=stamp,
            nonce=nonce,
            body_sha256=hashlib.sha256(body).hexdigest(),
        )
        request.headers.update(
            {
                "X-Novel-Key-Id": self._crawler.key_id,
                "X-Novel-Timestamp": stamp,
                "X-Novel-Nonce": nonce,
                "X-Novel-Signature": signed,
            }
        )
        return request


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with()


@pytest.fixture
def crawler(make_crawler: MakeCrawler) -> Crawler:
    return make_crawler()


@pytest.fixture
def document(served: Served) -> Any:
    return schemathesis.openapi.from_url(f"http://{HOST}:{served.port}/openapi.json")


def call(case: Case[Any], crawler: Crawler) -> int:
    """Send a case; fails unless the answer is one that the document declares for it."""
    answer = case.call(f"http://{HOST}:{crawler.port}", auth=Signed(crawler))
    case.validate_response(answer, checks=CHECKS)
    return answer.status_code


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_one_that_the_document_declares(
    served: Served, crawler: Crawler, conn: Connection, document: Any, method: str, path: str, mode: GenerationMode
) -> None:
    statuses = set()
    request_id = crawler.push(*map(chapter, range(5))).json()["request_id"]
    known = {"request_id": request_id} if method == "GET" else None

    @bounded
    @given(document[path][method].as_strategy(generation_mode=mode, path_parameters=known))
    def send(case: Case[Any]) -> None:
        statuses.add(call(case, crawler))

    send()
    assert "Traceback" not in served.said()
    assert_nothing_is_half_written(conn)
    assert 401 not in statuses, "what is behind the door was reached"
    if mode is GenerationMode.POSITIVE and path != REBUILD_STATS:
        assert statuses & {200, 202}


@pytest.mark.parametrize(
    ("path", "items"), [(STORIES, [story(1), story(2, slug="X")]), (CHAPTERS, [chapter(1), chapter(2)])]
)
def test_what_became_of_a_batch_is_told_as_the_document_declares(
    crawler: Crawler, document: Any, path: str, items: list[Any]
) -> None:
    headers = {"X-Novel-Request-Id": str(uuid.uuid4()), "Idempotency-Key": "once"}
    push = document[path]["POST"].Case(
        headers=headers, body={"source": "truyen-a", "items": items}, media_type="application/json"
    )
    assert call(push, crawler) in (200, 202)
    for method, shown in OPERATIONS:
        if method == "GET":
            request_id = {"request_id": headers["X-Novel-Request-Id"]}
            assert call(document[shown]["GET"].Case(path_parameters=request_id), crawler) == 200
