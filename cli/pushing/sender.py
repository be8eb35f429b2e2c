"""Sends batches, several at a time, and writes down what became of each item."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import zstandard

from cli.pushing import batches
from cli.pushing.batches import Batch
from cli.pushing.client import Answer, Client, GaveUp
from cli.pushing.items import Rejection
from cli.pushing.report import Report
from runtime.problems import Problem

ENCODING = "zstd"


@dataclass(slots=True)
class Accepted:
    """A request that the server has taken, and how far its items were when we last asked."""

    request_id: str
    count: int
    processed: int = 0
    failed: int = 0

    @property
    def done(self) -> int:
        return self.processed + self.failed


@dataclass(slots=True)
class Sender:
    client: Client
    report: Report
    concurrency: int = 2
    salt: str = ""
    """Makes other idempotency keys of the same content."""
    accepted: list[Accepted] = field(default_factory=list)

    async def send(self, waiting: Iterable[Batch], step: Callable[[int], None]) -> None:
        """Send them all, or raise the Problem that stands in the way of the rest."""
        shared = iter(waiting)  # each task takes the next one: a generator is never asked by two at a time
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(self._work(shared, step))
        except ExceptionGroup as errors:
            raise _first(errors) from None

    async def _work(self, shared: Iterator[Batch], step: Callable[[int], None]) -> None:
        for batch in shared:
            await self._push(batch)
            step(len(batch.items))

    async def _push(self, batch: Batch) -> None:
        taken_before = self.client.batches_taken
        key, compressed = await asyncio.to_thread(_encoded, batch, self.salt)
        try:
            answer = await self.client.post(
                batch.route.path, compressed, key=key, request_id=str(uuid.uuid4()), encoding=ENCODING
            )
        except GaveUp as reason:
            self.report.give_up(batch.place, len(batch.items), str(reason))
            if self.client.batches_taken == taken_before:  # nor does the server take any other
                raise Problem(f"stopped, because the server takes nothing: {reason}.") from None
            return
        if answer.status == 413 and len(batch.items) > 1:
            for half in batch.halves():
                await self._push(half)
            return
        try:
            self._write_down(batch, answer)
        except (KeyError, IndexError, TypeError, ValueError):
            raise Problem(f"{self.client.url} gave an answer to a batch that no novel service gives.") from None

    def _write_down(self, batch: Batch, answer: Answer) -> None:
        refused = answer.data.get("errors")
        if answer.status >= 300 and not refused:
            again = " (novel push --again makes new keys)" if answer.status == 409 else ""
            self.report.reject(Rejection(batch.place, answer.code, answer.message + again, len(batch.items)))
            return
        for error in refused or ():
            item = batch.items[error["index"]]
            self.report.reject(Rejection(item.place, error["code"], error["message"]))
        for warning in answer.data.get("warnings") or ():
            self.report.warn(f"{warning['code']}: {warning['message']}")
        count = int(answer.data["accepted_count"])
        if count:
            self.report.accept(batch.route, count)
            self.accepted.append(Accepted(str(answer.data["request_id"]), count))


def _encoded(batch: Batch, salt: str) -> tuple[str, bytes]:
    """The idempotency key, and the body as it is sent; the body itself is not kept while it is tried again."""
    body = batch.body()
    return batches.idempotency_key(batch, body, salt=salt), zstandard.ZstdCompressor().compress(body)


def _first(group: ExceptionGroup[Exception]) -> Exception:
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
