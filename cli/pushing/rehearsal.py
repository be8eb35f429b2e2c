"""What a push would send, without sending it: the batches, and what the service would say of each item."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from cli.pushing.batches import Batch, batches
from cli.pushing.items import CHAPTERS, STORIES, Rejection, of_route
from cli.pushing.lines import Input
from cli.pushing.report import Report
from ingest import batch as door
from ingest import envelope
from runtime.errors import ApiError

_KINDS = {STORIES: door.stories_kind(), CHAPTERS: door.chapters_kind(content_encoding="none")}


def rehearse(inputs: Iterable[Input], report: Report, *, source: str | None) -> Iterator[str]:
    """Check every item by the service's own rules; yields a line for each batch."""
    inputs = list(inputs)
    for route in (STORIES, CHAPTERS):
        for number, batch in enumerate(batches(of_route(inputs, route, source=source)), 1):
            body = batch.body()
            refused = _check(batch, body, report)
            yield (
                f"{route.name} batch {number}: source {batch.source}, items: {len(batch.items)}, bytes: {len(body)},"
                f" {batch.place}" + (f", would be rejected: {refused}" if refused else "")
            )


def _check(batch: Batch, body: bytes, report: Report) -> int:
    try:
        checked = door.check(envelope.read(body), _KINDS[batch.route], now=datetime.now(UTC))
    except ApiError as refusal:
        report.reject(Rejection(batch.place, refusal.code, refusal.message, len(batch.items)))
        return len(batch.items)
    for error in checked.errors:
        report.reject(Rejection(batch.items[error.index].place, error.code, error.message))
    for warning in checked.warnings:
        report.warn(f"{warning.code}: {warning.message}")
    return len(checked.errors)
