"""The HTTP client of a crawler: signs every attempt anew, tries again as the contract says, speaks of trouble in words.

A retry has a new time and nonce, but the body, the request id and the idempotency key of the first attempt: if only the
answer was lost, the server gives it again and takes nothing twice.
"""

import asyncio
import hashlib
import random
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import orjson

from cli.pushing import retrying
from ingest import signature
from runtime.problems import Problem

CONNECT_SECONDS = 10.0
# A server takes a large batch in seconds; one that hangs is left after this.
ANSWER_SECONDS = 120.0
NOTICE_EVERY_SECONDS = 10.0
_MAX_SHOWN = 200
_PIECE_BYTES = 64 << 10

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Credentials:
    key_id: str
    secret: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that no retry would change."""

    status: int
    data: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def code(self) -> str:
        error = self.data.get("error")
        return str(error.get("code")) if isinstance(error, dict) and error.get("code") else f"http_{self.status}"

    @property
    def message(self) -> str:
        error = self.data.get("error")
        said = error.get("message") if isinstance(error, dict) else None
        return str(said)[:_MAX_SHOWN] if said else f"the server answered with status {self.status}"


class GaveUp(Exception):
    """Every attempt failed in a way that a later one may not."""


class Client:
    """Asks one service with one key. Attempts that fail are counted anew whenever a batch got through meanwhile."""

    def __init__(self, url: str, credentials: Credentials, *, attempts: int, notice: Notice) -> None:
        self.url = url
        self.credentials = credentials
        self.attempts = attempts
        self.batches_taken = 0
        self._notice = notice
        self._noticed_at = -NOTICE_EVERY_SECONDS
        self._not_before = 0.0
        try:
            self._http = httpx.AsyncClient(timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS))
        except (ImportError, ValueError) as error:
            raise Problem(f"the proxy that the environment names cannot be used: {error}") from None

    async def close(self) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: bytes, *, key: str, request_id: str, encoding: str) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "Content-Encoding": encoding,
            "Content-Length": str(len(body)),
            "Idempotency-Key": key,
            "X-Novel-Request-Id": request_id,
        }
        answer = await self._ask("POST", path, {}, body, headers)
        if answer.status == 404:
            raise self._another_service(answer)
        self.batches_taken += answer.status < 300
        return answer

    async def get(self, path: str, **query: str | int) -> Answer:
        return await self._ask("GET", path, query, b"", {"X-Novel-Request-Id": str(uuid.uuid4())})

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str | int], body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        failed, taken_before = 0, self.batches_taken
        body_sha256 = hashlib.sha256(body).hexdigest()
        while True:
            await self._wait_for_turn()
            retry_after, status = None, 0
            try:
                response = await self._http.request(
                    method,
                    self.url + path,
                    params=dict(query) or None,
                    content=_pieces(body) if body else None,
                    headers={**headers, **self._signed(method, path, body_sha256)},
                )
            except httpx.RequestError as error:
                trouble = self._network_trouble(error)
            else:
                status = response.status_code
                answer = Answer(status, _data(response), response.headers)
                if status not in retrying.RETRIED:
                    return self._checked(answer)
                trouble = f"{answer.code}: {answer.message}" if "error" in answer.data else answer.message
                retry_after = retrying.retry_after_seconds(response.headers.get("retry-after"), now=datetime.now(UTC))
            failed += 1
            if status in retrying.PACING and self.batches_taken > taken_before:
                failed, taken_before = 1, self.batches_taken
            if (retry_after or 0) > retrying.MAX_RETRY_AFTER_SECONDS:
                raise GaveUp(f"{trouble.rstrip('.')}; come back in {retry_after:.0f} s")
            if failed >= self.attempts:
                raise GaveUp(trouble.rstrip("."))
            seconds = retrying.delay(failed, retry_after=retry_after, chance=random.random())  # noqa: S311
            self._say(f"{trouble.rstrip('.')}; trying again in {seconds:.0f} s ({failed} of {self.attempts} failed)")
            if retry_after is not None:  # it is meant for all that we send
                self._not_before = max(self._not_before, time.monotonic() + seconds)
            else:
                await asyncio.sleep(seconds)

    async def _wait_for_turn(self) -> None:
        await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))

    def _signed(self, method: str, path: str, body_sha256: str) -> dict[str, str]:
        timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
        return {
            "X-Novel-Key-Id": self.credentials.key_id,
            "X-Novel-Timestamp": timestamp,
            "X-Novel-Nonce": nonce,
            "X-Novel-Signature": signature.sign(
                self.credentials.secret,
                method=method,
                path=path,
                timestamp=timestamp,
                nonce=nonce,
                body_sha256=body_sha256,
            ),
        }

    def _say(self, text: str) -> None:
        """Now and then only: a long push meets its quota again and again."""
        if time.monotonic() - self._noticed_at >= NOTICE_EVERY_SECONDS:
            self._noticed_at = time.monotonic()
            self._notice(text)

    def _network_trouble(self, error: httpx.RequestError) -> str:
        said = str(error) or type(error).__name__
        if isinstance(error, httpx.UnsupportedProtocol) or "CERTIFICATE_VERIFY_FAILED" in said:
            raise Problem(f"{self.url} cannot be asked: {said}.") from None
        if isinstance(error, httpx.TimeoutException):
            return f"{self.url} did not answer in time"
        if isinstance(error, httpx.ConnectError):
            return f"{self.url} cannot be reached ({said})"
        return f"the connection to {self.url} broke ({said})"

    def _checked(self, answer: Answer) -> Answer:
        """The answer, unless it says that none of our requests can succeed."""
        status, code = answer.status, answer.code
        if 300 <= status < 400:
            raise Problem(f"{self.url} redirects to {answer.headers.get('location', 'nowhere')}: use that with --url.")
        if code == "timestamp_skew":
            raise Problem(_skew(answer.headers.get("date"), now=datetime.now(UTC)))
        if code == "invalid_signature":
            raise Problem(
                f"the server refused key {self.credentials.key_id}: {answer.message}"
                " Check NOVEL_PUSH_KEY_ID and the secret that belongs to it."
            )
        if status in (401, 403):
            raise Problem(f"the server refused key {self.credentials.key_id}: {answer.message} ({code})")
        if status in (405, 415, 426, 501) or (status < 300 and not answer.data):
            raise self._another_service(answer)
        return answer

    def _another_service(self, answer: Answer) -> Problem:
        return Problem(
            f"{self.url} does not answer as a novel service does (status {answer.status}). Is --url right?"
            " It is the address of the site, without /wp-json."
        )


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """A finished generator lets go of the body. httpx's responses are cycles, and would keep it until the next round
    of the garbage collector, which does not count bytes."""
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]


def _data(response: httpx.Response) -> dict[str, Any]:
    try:
        data = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def _skew(date: str | None, *, now: datetime) -> str:
    theirs = retrying.http_date(date)
    if theirs is None:
        return "this machine's clock and the server's differ by more than the server allows: set the clock right."
    seconds = round((now - theirs).total_seconds())
    side = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {abs(seconds)} seconds {side} the server's: set it right, then push again."
