"""The state of the queue as `novel queue status` shows it: three answers first, the figures below, or all as JSON."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.console import mark
from cli.keys import PIPED_WIDTH
from store import payloads
from store.queue_status import MAX_COUNTED, QueueStatus, Task, Worker
from worker.process import JOB_TYPES, RECOUNTS

# The goal of the specification for queue lag.
BEHIND_SECONDS = 300
# Longer than any set of items takes, with all its retries.
STUCK_SECONDS = 600

_NAMES = {payloads.STORIES: "stories", payloads.CHAPTERS: "chapters"}
_STATES = {"dead_letter": "dead letter", "failed": "failed"}


# -- the three questions --------------------------------------------------------------------------------


def oldest_due_seconds(status: QueueStatus) -> float | None:
    """How long what is due has waited at most, recounts included; None when nothing is due."""
    ages = [depth.oldest_due_seconds for depth in status.waiting]
    return max((age for age in (*ages, status.recounts.oldest_due_seconds) if age is not None), default=None)


def keeps_up(status: QueueStatus) -> bool:
    oldest = oldest_due_seconds(status)
    return oldest is None or oldest <= BEHIND_SECONDS


def stuck(status: QueueStatus, *, lease_seconds: float) -> list[str]:
    """What will not go on by itself, or should have gone on long since, each in one line."""
    return [
        *_idle(status, lease_seconds),
        *(_silent(worker) for worker in status.workers if worker.is_late(lease_seconds)),
        *_abandoned(status),
        *(
            f"{counted(group.units, 'unit')} of {job_type_name(group.job_type)} from {group.source}"
            f" being processed, the oldest for {span(group.oldest_claim_seconds)}"
            for group in status.processing
            if group.oldest_claim_seconds > STUCK_SECONDS
        ),
        *_locked_recounts(status, lease_seconds),
        *_overdue(status, lease_seconds),
    ]


def _idle(status: QueueStatus, lease_seconds: float) -> Iterator[str]:
    """A worker does one kind of work: others that run are of no help."""
    running = _running(status, lease_seconds)
    for kind, job_type in JOB_TYPES.items():
        due = sum(depth.due_items for depth in status.waiting if depth.job_type == job_type)
        if due and kind not in running:
            yield _start(f"{counted(due, 'item')} of {kind}", f"novel ingest-worker {kind}")
    if status.recounts.due and RECOUNTS not in running:
        yield _start(counted(status.recounts.due, "recount"), "novel recount-worker stories")


def _running(status: QueueStatus, lease_seconds: float) -> set[str]:
    """The kinds of workers of which one at least is well."""
    return {worker.kind for worker in status.workers if not worker.is_late(lease_seconds)}


def _start(what: str, command: str) -> str:
    return f"{what} due, and no worker for that is running: start one with {command}"


def _silent(worker: Worker) -> str:
    held = f", with {counted(worker.units, 'unit')} in its hands" if worker.units else ""
    who = f"worker {worker.id} ({worker.kind}, {_host(worker)}, process {worker.pid})"
    return f"{who} is silent for {span(worker.heartbeat_seconds)}{held}"


def _abandoned(status: QueueStatus) -> Iterator[str]:
    if units := status.abandoned.units:
        yield f"{counted(units, 'unit')} held by workers that are gone: any running worker takes them over"


def _locked_recounts(status: QueueStatus, lease_seconds: float) -> Iterator[str]:
    age = status.recounts.oldest_lock_seconds
    if age is not None and age > max(lease_seconds, STUCK_SECONDS):
        yield f"{counted(status.recounts.locked, 'recount')} locked, the oldest for {span(age)}"


def _overdue(status: QueueStatus, lease_seconds: float) -> Iterator[str]:
    overdue = [task for task in status.maintenance if task.overdue_seconds > BEHIND_SECONDS]
    if overdue and not _running(status, lease_seconds):
        longest = span(max(task.overdue_seconds for task in overdue))
        yield f"maintenance is overdue by {longest}, and no worker is running: start one, or run novel maintenance"
        return
    for task in overdue:
        yield f"task {task.task} of maintenance is overdue by {span(task.overdue_seconds)}"


# -- as JSON --------------------------------------------------------------------------------------------


def as_json(status: QueueStatus, *, lease_seconds: float) -> dict[str, Any]:
    """Everything there is to know. Keys are only ever added."""
    waiting = status.waiting
    return {
        "taken_at": f"{status.taken_at:%Y-%m-%dT%H:%M:%SZ}",
        "keeps_up": keeps_up(status),
        "oldest_due_seconds": oldest_due_seconds(status),
        "stuck": stuck(status, lease_seconds=lease_seconds),
        "waiting": [asdict(depth) for depth in waiting],
        "waiting_items": sum(depth.items for depth in waiting),
        "due_items": sum(depth.due_items for depth in waiting),
        "processing": [asdict(group) for group in status.processing],
        "processing_items": sum(group.items for group in status.processing),
        "abandoned": asdict(status.abandoned),
        "failures": [asdict(group) for group in status.failures],
        "dead_letter_items": status.ended("dead_letter"),
        "dead_letter_items_capped": status.is_capped("dead_letter"),
        "failed_items": status.ended("failed"),
        "failed_items_capped": status.is_capped("failed"),
        "workers": [asdict(worker) | {"late": worker.is_late(lease_seconds)} for worker in status.workers],
        "recounts": asdict(status.recounts),
        "maintenance": [
            asdict(task) | {"finished_at": f"{task.finished_at:%Y-%m-%dT%H:%M:%SZ}" if task.finished_at else None}
            for task in status.maintenance
        ],
    }


# -- as text --------------------------------------------------------------------------------------------


def as_text(status: QueueStatus, *, lease_seconds: float) -> str:
    parts = ["\n".join(_answers(status, lease_seconds)), *_waiting(status), *_processing(status)]
    parts += [*_failures(status), *_workers(status, lease_seconds), *_recounts(status), *_maintenance(status)]
    return "\n\n".join(parts)


def _answers(status: QueueStatus, lease_seconds: float) -> Iterator[str]:
    if not status.waiting and not status.processing:
        yield "The queue is empty: nothing waits, and nothing is being processed."
    oldest = oldest_due_seconds(status)
    good = "nothing is due" if oldest is None else f"what is due has waited for {span(oldest)} at most"
    behind = f"what is due has waited for up to {span(oldest or 0)}; more than {span(BEHIND_SECONDS)} is too long"
    yield _answer("Keeps up?", f"yes: {good}" if keeps_up(status) else f"no: {behind}", keeps_up(status))
    found = stuck(status, lease_seconds=lease_seconds)
    yield _answer("Stuck?", found[0] if found else "nothing", not found)
    for line in found[1:]:
        yield _answer("", line, False)
    dead, failed = (_capped(status.ended(name)) for name in ("dead_letter", "failed"))
    if status.failures:
        yield _answer("Failed?", f"dead letters: {dead}, failed: {failed}", False)
        yield _answer("", "see which could be queued again with: novel replay-dead-letter --dry-run", True)
    else:
        yield _answer("Failed?", "nothing", True)


def _answer(question: str, text: str, is_good: bool) -> str:
    return f"{question:<11}{text if is_good else mark(text, 'red')}"


def _waiting(status: QueueStatus) -> Iterator[str]:
    headings = ("JOB TYPE", "SOURCE", "ITEMS", "UNITS", "DUE NOW", "OLDEST DUE", "FOR A STORY", "FOR A RETRY")
    rows = [
        (
            *(job_type_name(depth.job_type), depth.source, f"{depth.items:,}", f"{depth.units:,}"),
            *(f"{depth.due_items:,}", "" if depth.oldest_due_seconds is None else span(depth.oldest_due_seconds)),
            *(f"{depth.waiting_for_story_items:,}", f"{depth.waiting_for_retry_items:,}"),
        )
        for depth in status.waiting
    ]
    if rows:
        yield f"Waiting\n{table(headings, rows)}"


def _processing(status: QueueStatus) -> Iterator[str]:
    headings = ("JOB TYPE", "SOURCE", "ITEMS", "UNITS", "OLDEST CLAIM")
    rows = [
        (
            *(job_type_name(group.job_type), group.source, f"{group.items:,}", f"{group.units:,}"),
            span(group.oldest_claim_seconds),
        )
        for group in status.processing
    ]
    if rows:
        yield f"Being processed\n{table(headings, rows)}"


def _failures(status: QueueStatus) -> Iterator[str]:
    headings = ("JOB TYPE", "STATE", "ERROR CODE", "ITEMS", "NEWEST")
    rows = [
        (
            *(job_type_name(group.job_type), _STATES[group.status], group.error_code or "none"),
            *(_capped(group.items), f"{span(group.newest_seconds)} ago"),
        )
        for group in status.failures
    ]
    if rows:
        capped = any(status.is_capped(name) for name in _STATES)
        note = f", the newest {MAX_COUNTED} of a state counted" if capped else ""
        yield f"Failed{note}\n{table(headings, rows)}"


def _workers(status: QueueStatus, lease_seconds: float) -> Iterator[str]:
    headings = ("ID", "KIND", "HOST", "PROCESS", "RUNS SINCE", "HEARTBEAT", "UNITS", "ITEMS", "STATE")
    rows = [
        (
            *(str(worker.id), worker.kind, _host(worker), str(worker.pid), span(worker.started_seconds)),
            *(f"{span(worker.heartbeat_seconds)} ago", f"{worker.units:,}", f"{worker.items:,}"),
            "late" if worker.is_late(lease_seconds) else "well",
        )
        for worker in status.workers
    ]
    yield f"Workers\n{table(headings, rows)}" if rows else "Workers\nNone is running."


def _host(worker: Worker) -> str:
    """Its name, without the machine's id."""
    return worker.host.partition("/")[0]


def _recounts(status: QueueStatus) -> Iterator[str]:
    recounts = status.recounts
    if not recounts.stories:
        yield "Recounts\nNo story waits for one."
        return
    age = recounts.oldest_due_seconds
    oldest = "" if age is None else f" (the oldest for {span(age)})"
    yield (
        f"Recounts\n{counted(recounts.stories, 'story', 'stories')}: {recounts.due:,} due{oldest},"
        f" {recounts.locked:,} locked, {recounts.retrying:,} to be tried again"
    )


def _maintenance(status: QueueStatus) -> Iterator[str]:
    headings = ("TASK", "LAST FINISHED", "TOOK", "ROWS", "LAG", "STATE")
    rows = [
        (
            task.task,
            "never" if task.finished_seconds is None else f"{span(task.finished_seconds)} ago",
            *(f"{task.took_seconds:.1f} s", f"{task.changed_rows:,}", span(task.lag_seconds), _state(task)),
        )
        for task in status.maintenance
    ]
    yield f"Maintenance\n{table(headings, rows)}" if rows else "Maintenance\nNo task has run yet."


def _state(task: Task) -> str:
    if task.holder:
        return f"running in worker {task.holder}"
    return f"overdue by {span(task.overdue_seconds)}" if task.overdue_seconds > BEHIND_SECONDS else "well"


# -- words and tables -----------------------------------------------------------------------------------


def job_type_name(job_type: str) -> str:
    """As commands call it."""
    return _NAMES.get(job_type, job_type)


def span(seconds: float) -> str:
    """How long, in the two units that matter."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{counted(whole // 86400, 'day')} {whole % 86400 // 3600} h"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As wide as the terminal; elsewhere a line for each row, however long."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        shown.add_column(heading)
    for row in rows:
        shown.add_row(*map(Text, row))  # as Text, because [brackets] in a name are no markup
    console = Console(file=sys.stdout) if sys.stdout.isatty() else Console(file=sys.stdout, width=PIPED_WIDTH)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _capped(count: int) -> str:
    return f"{MAX_COUNTED}+" if count >= MAX_COUNTED else f"{count:,}"


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
