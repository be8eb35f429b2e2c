"""A service that misbehaves on command: it takes signed batches as the real one does, after what a script says."""

import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard

from cli.pushing.client import Credentials
from ingest import signature

CREDENTIALS = Credentials("nk_test.1", "a-secret-of-the-tests")
INGEST = "/wp-json/novel/v1/ingest/"


@dataclass(frozen=True)
class Trouble:
    """What happens to one request instead of, or after, what should."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    drops: bool = False
    """Hang up before anything is done."""
    loses_answer: bool = False
    """Do it all, then hang up without a word."""


@dataclass(frozen=True)
class Attempt:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def error(code: str, message: str = "It is so.", **more: Any) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "details": None}, **more}).encode()


@dataclass
class Batch:
    """A batch that was taken: once for each idempotency key."""

    path: str
    source: str
    items: list[dict[str, Any]]
    answer: dict[str, Any]
    status: int


@dataclass
class FakeService:
    url: str = ""
    troubles: deque[Trouble] = field(default_factory=deque)
    """For the next requests, one each."""
    is_rejected: Callable[[dict[str, Any]], bool] = lambda item: False
    max_items: int = 300
    refuses: Callable[[dict[str, Any]], bool] = lambda item: False
    """Batches with such an item always get a 500."""
    on_attempt: Callable[[], None] = lambda: None
    attempts: list[Attempt] = field(default_factory=list)
    batches: dict[str, Batch] = field(default_factory=dict)
    states: list[dict[str, Any]] = field(default_factory=list)
    """Answers to questions about requests, the last one for good; none: all is completed."""
    failed_items: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def posts(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.method == "POST"]

    def items(self, kind: str) -> list[dict[str, Any]]:
        return [item for batch in self.batches.values() if kind in batch.path for item in batch.items]

    def take(self, attempt: Attempt) -> tuple[int, bytes]:
        key = attempt.headers["idempotency-key"]
        if key in self.batches:
            return self.batches[key].status, json.dumps(self.batches[key].answer).encode()
        body = json.loads(zstandard.ZstdDecompressor().decompress(attempt.body))
        if len(body["items"]) > self.max_items:
            return 413, error("payload_too_large")
        if any(map(self.refuses, body["items"])):
            return 500, error("internal_error")
        errors = [
            {"index": index, "code": "invalid_slug", "message": "slug is wrong."}
            for index, item in enumerate(body["items"])
            if self.is_rejected(item)
        ]
        answer: dict[str, Any] = {
            "request_id": attempt.headers["x-novel-request-id"],
            "accepted_count": len(body["items"]) - len(errors),
            "rejected_count": len(errors),
            "errors": errors,
            "warnings": [],
        }
        if not answer["accepted_count"]:
            return 422, error("invalid_schema", **answer)
        batch = Batch(attempt.path, body["source"], body["items"], answer, 200 if errors else 202)
        self.batches[key] = batch
        return batch.status, json.dumps(answer).encode()

    def state(self, request_id: str) -> tuple[int, bytes]:
        if self.states:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return 200, json.dumps({"request_id": request_id} | state).encode()
        for batch in self.batches.values():
            if batch.answer["request_id"] == request_id:
                done = batch.answer["accepted_count"]
                return 200, json.dumps({"status": "completed", "processed_items": done, "failed_items": 0}).encode()
        return 404, error("not_found")


@contextmanager
def fake_service() -> Iterator[FakeService]:
    service = FakeService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            path, _, _ = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            attempt = Attempt(self.command, path, headers, body)
            with service.lock:
                service.attempts.append(attempt)
                service.on_attempt()
                trouble = service.troubles.popleft() if service.troubles else Trouble()
                if trouble.drops:
                    self.hang_up()
                elif trouble.status:
                    self.reply(trouble.status, trouble.body, trouble.headers)
                else:
                    status, answer = self.handle_attempt(attempt)
                    if trouble.loses_answer:
                        self.hang_up()
                    else:
                        self.reply(status, answer, {})

        def handle_attempt(self, attempt: Attempt) -> tuple[int, bytes]:
            expected = signature.sign(
                CREDENTIALS.secret,
                method=attempt.method,
                path=attempt.path,
                timestamp=attempt.headers["x-novel-timestamp"],
                nonce=attempt.headers["x-novel-nonce"],
                body_sha256=hashlib.sha256(attempt.body).hexdigest(),
            )
            if attempt.headers["x-novel-signature"] != expected:
                return 401, error("invalid_signature", "The signature does not match.")
            if not attempt.path.startswith(INGEST):
                return 404, b"<html>no such page</html>"
            if attempt.method == "POST":
                return service.take(attempt)
            if attempt.path.endswith("/items"):
                page = {"items": service.failed_items, "next_cursor": None, "has_more": False}
                return 200, json.dumps(page).encode()
            return service.state(attempt.path.rpartition("/")[2])

        def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response_only(status)
            for name, value in ({"Date": formatdate(usegmt=True)} | headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def hang_up(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(2)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
