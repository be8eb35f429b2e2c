"""Crawlers: threads that push batches over HTTP, lose answers, and push the very same bytes again."""

import contextlib
import gzip
import hashlib
import http.client
import json
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ingest import routes, signature
from loadtests.chaos.feed import Batch
from loadtests.chaos.pace import Pace
from loadtests.chaos.stage import HOST, PATHS, Stage
from runtime.problems import Problem

THREADS = 3
ANSWER_SECONDS = 60.0
BUSY_SECONDS = 0.2
MAX_BUSY = 200
# Shares of the batches whose answer is lost, that are pushed again after it, and twice at the same time.
LOST, AGAIN, TWICE = 0.05, 0.10, 0.05


@dataclass(slots=True)
class Pushed:
    """What came of pushing."""

    requests: dict[int, str] = field(default_factory=dict)
    """The id of each batch's request, by the batch's place."""
    repeats: int = 0
    wrong: list[str] = field(default_factory=list)
    """Answers that were not what they should have been."""


class Crawlers:
    def __init__(self, stage: Stage, batches: Sequence[Batch], pace: Pace, *, seed: int) -> None:
        self.pushed = Pushed()
        self._stage = stage
        self._batches = batches
        self._pace = pace
        self._seed = seed
        self._threads = ThreadPoolExecutor(2 * THREADS + 1)  # each may push twice at a time
        self._lock = threading.Lock()
        self._next = 0

    def start(self, *, first: int) -> Future[None]:
        """Push the first batches and wait until they are done; then all others, in order, from several threads."""
        return self._threads.submit(self._push_all, first)

    def close(self) -> None:
        self._pace.end()
        self._threads.shutdown(cancel_futures=True)

    def _push_all(self, first: int) -> None:
        with contextlib.closing(_Client(self._stage)) as client:
            for place in range(first):
                self._push(client, place)
            for request_id in list(self.pushed.requests.values()):
                client.wait_until_ended(request_id)
        self._next = first
        running = [self._threads.submit(self._push_some) for _ in range(THREADS)]
        for future in running:
            future.result()

    def _push_some(self) -> None:
        with contextlib.closing(_Client(self._stage)) as client:
            while True:
                with self._lock:
                    place = self._next
                    self._next += 1
                if place >= len(self._batches) or not self._pace.wait_to_push(place):
                    return
                self._push(client, place)

    def _push_beside(self, sent: "_Sent") -> tuple[int, bytes]:
        with contextlib.closing(_Client(self._stage)) as client:
            return client.push(sent)

    def _push(self, client: "_Client", place: int) -> None:
        """Push a batch, and see that the answer is the one it has to be, however often it is asked for."""
        batch = self._batches[place]
        random = Random(f"{self._seed} {place}")
        chance = random.random()
        sent = _Sent.of(batch, compressed=random.random() < 0.5)
        answers = []
        if chance < LOST:
            client.push_and_hang_up(sent)
        if LOST <= chance < LOST + TWICE:
            other = self._threads.submit(self._push_beside, sent)
            answers += [client.push(sent), other.result()]
        else:
            answers.append(client.push(sent))
        if chance > 1 - AGAIN:
            answers.append(client.push(sent))
        with self._lock:
            self.pushed.repeats += len(answers) - 1 + (chance < LOST)
            self.pushed.wrong += _mistakes(batch, place, answers)
            self.pushed.requests[place] = sent.request_id


@dataclass(frozen=True, slots=True)
class _Sent:
    path: str
    body: bytes
    is_compressed: bool
    request_id: str
    idempotency_key: str

    @classmethod
    def of(cls, batch: Batch, *, compressed: bool) -> "_Sent":
        body = gzip.compress(batch.body(), 1) if compressed else batch.body()
        return cls(PATHS[batch.kind], body, compressed, str(uuid.uuid4()), str(uuid.uuid4()))


class _Client:
    """One connection, opened anew when it breaks."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._connection = self._connect()

    def close(self) -> None:
        self._connection.close()

    def push(self, sent: _Sent) -> tuple[int, bytes]:
        """Push until there is an answer that is final."""
        for _ in range(MAX_BUSY):
            status, content = self._ask("POST", sent.path, sent.body, self._headers_of(sent))
            if status not in (429, 503):
                return status, content
            time.sleep(BUSY_SECONDS)
        raise Problem("the ingest service was busy all the time. See its log.")

    def push_and_hang_up(self, sent: _Sent) -> None:
        """Push, and be gone before there is an answer."""
        connection = self._connect()
        connection.request("POST", sent.path, sent.body, self._headers_of(sent))
        connection.close()

    def wait_until_ended(self, request_id: str) -> None:
        path = routes.REQUEST.format(request_id=request_id)
        deadline = time.monotonic() + ANSWER_SECONDS
        while self.get(path)["status"] in ("queued", "processing"):
            if time.monotonic() > deadline:
                raise Problem("what has to be there first did not end. See the log of the workers.")
            time.sleep(BUSY_SECONDS / 4)

    def get(self, path: str) -> Any:
        status, content = self._ask("GET", path, None, self._signed("GET", path, b""))
        if status != 200:
            raise Problem(f"the ingest service answered {path} with {status}: {content.decode()}")
        return json.loads(content)

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self._stage.port, timeout=ANSWER_SECONDS)

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, dict(headers))
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):  # as a crawler does: once more
            self._connection.close()
            self._connection = self._connect()
            return 503, b""

    def _headers_of(self, sent: _Sent) -> dict[str, str]:
        encoding = {"Content-Encoding": "gzip"} if sent.is_compressed else {}
        return (
            self._signed("POST", sent.path, sent.body)
            | encoding
            | {
                "Content-Type": "application/json",
                "X-Novel-Request-Id": sent.request_id,
                "Idempotency-Key": sent.idempotency_key,
            }
        )

    def _signed(self, method: str, path: str, body: bytes) -> dict[str, str]:
        timestamp, nonce = str(int(time.time())), uuid.uuid4().hex
        signed = signature.sign(
            self._stage.secret,
            method=method,
            path=path,
            timestamp=timestamp,
            nonce=nonce,
            body_sha256=hashlib.sha256(body).hexdigest(),
        )
        return {
            "X-Novel-Key-Id": self._stage.key_id,
            "X-Novel-Timestamp": timestamp,
            "X-Novel-Nonce": nonce,
            "X-Novel-Signature": signed,
        }


def _mistakes(batch: Batch, place: int, answers: Sequence[tuple[int, bytes]]) -> list[str]:
    found = []
    if len(set(answers)) > 1:
        found.append(f"batch {place}: {len(set(answers))} different answers to the same bytes")
    status, content = answers[0]
    if status not in (200, 202):
        return [*found, f"batch {place}: answered with {status}: {content.decode()[:300]}"]
    said = json.loads(content)
    if said["accepted_count"] != len(batch.accepted):
        found.append(f"batch {place}: {said['accepted_count']} accepted, not {len(batch.accepted)}")
    refused = {error["index"]: error["code"] for error in said["errors"]}
    if refused != batch.rejected:
        found.append(f"batch {place}: refused {refused}, not {batch.rejected}")
    return found
