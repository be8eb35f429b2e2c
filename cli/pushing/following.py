"""Follows accepted requests until their items are stored: asks for states, and for the items of those that failed."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from cli.pushing.client import Client, GaveUp
from cli.pushing.report import MAX_SHOWN, Failure, Report
from cli.pushing.sender import Accepted
from runtime.problems import Problem

STATES = "/wp-json/novel/v1/ingest/requests"
# Nothing moves for so long: most likely no worker runs.
STALL_SECONDS = 60.0
# A key may ask for 600 states in a minute: stay below that.
ROUND_REQUESTS = 8
ROUND_SECONDS = 1.0
PAGE_ITEMS = 200

_ENDED = {"completed", "partially_failed", "failed"}
_FAILED = {"failed", "dead_letter"}
_SAFE = "What was accepted is safe in the queue."


async def follow(
    client: Client,
    accepted: Iterable[Accepted],
    report: Report,
    *,
    wait_seconds: float,
    step: Callable[[int], None],
    stall_seconds: float = STALL_SECONDS,
    round_seconds: float = ROUND_SECONDS,
) -> None:
    """Return when all is done, or when waiting for it makes no sense any more, which is said."""
    waiting = deque(accepted)
    report.waited = True
    started = moved_at = time.monotonic()
    while waiting:
        moved, round_started = 0, time.monotonic()
        try:
            for _ in range(min(ROUND_REQUESTS, len(waiting))):
                before = waiting[0].done
                has_ended = await _look(client, waiting[0], report)
                moved += waiting[0].done - before
                request = waiting.popleft()
                if not has_ended:
                    waiting.append(request)
        except (GaveUp, Problem) as trouble:
            report.say(f"batches whose state is unknown: {len(waiting)}, because {str(trouble).rstrip('.')}. {_SAFE}")
            return
        step(moved)
        now = time.monotonic()
        if moved:
            moved_at = now
        if not waiting:
            return
        if now - started >= wait_seconds:
            report.say(f"waited {wait_seconds:.0f} s; batches that are not processed yet: {len(waiting)}. {_SAFE}")
            return
        if now - moved_at >= stall_seconds:
            report.say(f"nothing was processed for {stall_seconds:.0f} s: does a worker run? {_SAFE}")
            return
        await asyncio.sleep(max(0.0, min(round_started + round_seconds, started + wait_seconds) - now))


async def _look(client: Client, request: Accepted, report: Report) -> bool:
    """Ask for one state, and count what has been done since the last time; whether the request has ended."""
    answer = await client.get(f"{STATES}/{request.request_id}")
    if answer.status != 200:
        report.warn(f"{answer.code}: {answer.message} (request {request.request_id})")
        return True
    try:
        status = str(answer.data["status"])
        processed, failed = int(answer.data["processed_items"]), int(answer.data["failed_items"])
    except (KeyError, TypeError, ValueError):
        raise Problem(f"{client.url} gave an answer that no novel service gives.") from None
    if status == "failed":
        failed = request.count - processed
    report.processed += processed - request.processed
    report.failed_later += failed - request.failed
    request.processed, request.failed = processed, failed
    if status in _ENDED and failed and len(report.failures) < MAX_SHOWN:
        await _name_failures(client, request, report)
    return status in _ENDED


async def _name_failures(client: Client, request: Accepted, report: Report) -> None:
    query: dict[str, str | int] = {"limit": PAGE_ITEMS}
    while True:
        answer = await client.get(f"{STATES}/{request.request_id}/items", **query)
        if answer.status != 200:
            return
        for item in answer.data["items"]:
            if item["status"] in _FAILED:
                report.fail(_failure(item))
        if len(report.failures) >= MAX_SHOWN or not answer.data.get("has_more"):
            return
        query["cursor"] = str(answer.data["next_cursor"])


def _failure(item: dict[str, Any]) -> Failure:
    return Failure(str(item["external_id"]), str(item["error_code"]), str(item["message"] or ""))
