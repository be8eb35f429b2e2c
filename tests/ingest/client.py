"""A crawler of the tests: signs and sends what a test wants, also what no honest client would."""

import hashlib
import http.client
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest import routes, signature
from tests.processes import ANSWER_SECONDS, HOST, Answer, answer

STORIES = routes.STORIES
CHAPTERS = routes.CHAPTERS
SOURCE = "truyen-a"


def story(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "source_story_id": f"s{number}",
        "slug": f"truyen-{number}",
        "title": f"Truyện {number}",
        "updated_at_source": "2026-02-21T08:00:00Z",
    } | fields


def chapter(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "source_story_id": "s1",
        "source_chapter_id": f"c{number}",
        "chapter_no": number,
        "slug": f"chuong-{number}",
        "title": f"Chương {number}",
        "content_raw": f"Nội dung chương {number}.",
        "updated_at_source": "2026-02-21T08:05:00Z",
    } | fields


def batch(*items: Any, source: str = SOURCE, **more: Any) -> bytes:
    return json.dumps({"source": source, "items": list(items)} | more, ensure_ascii=False).encode()


def refusal(answer: Answer) -> tuple[int, str]:
    """The status and the code of an answer that says no."""
    return answer.status, answer.json()["code"]


@dataclass
class Crawler:
    """Pushes to a server with one key."""

    port: int
    key_id: str
    secret: str
    more_headers: dict[str, str] = field(default_factory=dict)
    address: str = HOST
    """From which it comes."""

    def headers(
        self, method: str, path: str, body: bytes = b"", *, timestamp: int | None = None, nonce: str | None = None
    ) -> dict[str, str]:
        stamp = str(int(time.time()) if timestamp is None else timestamp)
        nonce = nonce or uuid.uuid4().hex
        signed = signature.sign(
            self.secret,
            method=method,
            path=path,
            timestamp=stamp,
            nonce=nonce,
            body_sha256=hashlib.sha256(body).hexdigest(),
        )
        return {
            "X-Novel-Key-Id": self.key_id,
            "X-Novel-Timestamp": stamp,
            "X-Novel-Nonce": nonce,
            "X-Novel-Request-Id": str(uuid.uuid4()),
            "Idempotency-Key": str(uuid.uuid4()),
            "X-Novel-Signature": signed,
            "Content-Type": "application/json",
        } | self.more_headers

    def send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        source = (self.address, 0)
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_SECONDS, source_address=source)
        try:
            connection.request(method, target, body, dict(headers))
            return answer(connection.getresponse())
        finally:
            connection.close()

    def post(self, path: str, body: bytes, *, nonce: str | None = None, **headers: str) -> Answer:
        """Push a body; a header given as `Idempotency_Key="x"` takes the place of what is made here."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("POST", path, body, self.headers("POST", path, body, nonce=nonce) | given)

    def push(self, *items: Any, path: str = CHAPTERS, source: str = SOURCE, **headers: str) -> Answer:
        return self.post(path, batch(*items, source=source), **headers)

    def get(self, path: str, query: str = "", *, nonce: str | None = None) -> Answer:
        return self.send("GET", path + query, None, self.headers("GET", path, nonce=nonce))
