"""What `novel queue status` says of a queue: its three answers, each way to be stuck, the figures, and the JSON."""

import io
import json
import os
import pty
import sys
from dataclasses import replace
from datetime import datetime
from typing import Any

import click
import pytest

from cli import queue_view
from cli.queue_view import as_json, as_text, keeps_up, oldest_due_seconds, span, stuck, table
from store import payloads
from store.queue_status import (
    MAX_COUNTED,
    Abandoned,
    Depth,
    Failures,
    Processing,
    QueueStatus,
    Recounts,
    Task,
    Worker,
)

LEASE_SECONDS = 120.0
EMPTY = QueueStatus(
    taken_at=datetime(2026, 7, 31, 10, 0, 0),
    waiting=(),
    processing=(),
    failures=(),
    workers=(),
    abandoned=Abandoned(0, 0),
    recounts=Recounts(0, 0, None, 0, None, 0),
    maintenance=(),
)


def worker(kind: str = "chapters", **fields: Any) -> Worker:
    given: dict[str, Any] = {
        "id": 7,
        "kind": kind,
        "host": "host-1/machine",
        "pid": 77,
        "started_seconds": 90.0,
        "heartbeat_seconds": 1.0,
        "units": 0,
        "items": 0,
    }
    return Worker(**given | fields)


def waiting(due_items: int = 5, *, job_type: str = payloads.CHAPTERS, oldest: float | None = 10.0) -> Depth:
    return Depth(job_type, "truyen-a", 2, due_items + 3, 1, due_items, 1, 2, oldest if due_items else None)


def task(name: str = "jobs", **fields: Any) -> Task:
    given: dict[str, Any] = {
        "task": name,
        "holder": None,
        "finished_at": None,
        "finished_seconds": None,
        "took_seconds": 1.25,
        "changed_rows": 1234,
        "lag_seconds": 61.0,
        "overdue_seconds": 0.0,
    }
    return Task(**given | fields)


EVERYTHING = replace(
    EMPTY,
    waiting=(waiting(1500),),
    processing=(Processing(payloads.STORIES, "truyen-a", 2, 300, 5.0),),
    failures=(
        Failures(payloads.CHAPTERS, "dead_letter", "apply_failed", 3, 86400.0),
        Failures(payloads.CHAPTERS, "failed", None, 1, 30.0),
    ),
    workers=(worker(), worker("stories", id=8, units=2, items=300)),
    recounts=Recounts(4, 1, 12.0, 2, 3.0, 1),
    maintenance=(
        task(finished_at=datetime(2026, 7, 31, 9, 0, 0), finished_seconds=3600.0),
        task("minutes", holder="7"),
    ),
)


def is_stuck(**parts: Any) -> list[str]:
    return stuck(replace(EMPTY, **parts), lease_seconds=LEASE_SECONDS)


# -- does it keep up ------------------------------------------------------------------------------------


def test_a_queue_keeps_up_while_nothing_has_been_due_for_more_than_five_minutes() -> None:
    assert keeps_up(EMPTY)
    assert keeps_up(replace(EMPTY, waiting=(waiting(oldest=300.0), waiting(0))))
    assert not keeps_up(replace(EMPTY, waiting=(waiting(oldest=20.0), waiting(oldest=300.1))))


def test_recounts_have_to_keep_up_too() -> None:
    late = replace(EMPTY, recounts=Recounts(1, 1, 301.0, 0, None, 0), waiting=(waiting(oldest=2.0),))
    assert oldest_due_seconds(late) == 301
    assert not keeps_up(late)


def test_what_is_not_due_is_not_late() -> None:
    assert oldest_due_seconds(replace(EMPTY, waiting=(waiting(0),))) is None


# -- is anything stuck ----------------------------------------------------------------------------------


def test_a_queue_that_is_well_is_not_stuck() -> None:
    assert is_stuck() == []
    both = (worker(), worker("recounts"), worker("stories"))
    assert is_stuck(workers=both, waiting=(waiting(), waiting(job_type=payloads.STORIES))) == []


def test_what_is_due_without_a_worker_is_stuck_and_the_command_is_named() -> None:
    assert is_stuck(waiting=(waiting(2), waiting(1))) == [
        "3 items of chapters due, and no worker for that is running: start one with novel ingest-worker chapters"
    ]
    assert is_stuck(recounts=Recounts(9, 1, 1.0, 0, None, 0)) == [
        "1 recount due, and no worker for that is running: start one with novel recount-worker stories"
    ]


def test_workers_of_another_kind_are_no_help() -> None:
    assert is_stuck(workers=(worker("stories"), worker("recounts")), waiting=(waiting(1),)) == [
        "1 item of chapters due, and no worker for that is running: start one with novel ingest-worker chapters"
    ]
    assert len(is_stuck(workers=(worker("chapters"),), recounts=Recounts(1, 1, 1.0, 0, None, 0))) == 1
    assert len(is_stuck(workers=(worker("chapters"),), waiting=(waiting(job_type=payloads.STORIES),))) == 1


def test_a_silent_worker_is_no_help_either() -> None:
    lines = is_stuck(workers=(worker(heartbeat_seconds=61.0),), waiting=(waiting(1),))
    assert [line.partition(":")[0] for line in lines] == [
        "1 item of chapters due, and no worker for that is running",
        "worker 7 (chapters, host-1, process 77) is silent for 1 min 1 s",
    ]


def test_what_waits_and_is_not_due_needs_no_worker() -> None:
    assert is_stuck(waiting=(waiting(0),), recounts=Recounts(3, 0, None, 0, None, 0)) == []


def test_a_worker_is_silent_from_half_its_lease_on_and_what_it_holds_is_said() -> None:
    assert is_stuck(workers=(worker(heartbeat_seconds=60.0),)) == []
    assert is_stuck(workers=(worker(heartbeat_seconds=3700.0, units=2),)) == [
        "worker 7 (chapters, host-1, process 77) is silent for 1 h 1 min, with 2 units in its hands"
    ]


def test_what_gone_workers_hold_is_stuck() -> None:
    assert is_stuck(abandoned=Abandoned(1, 300)) == [
        "1 unit held by workers that are gone: any running worker takes them over"
    ]


def test_what_is_processed_for_more_than_ten_minutes_is_stuck() -> None:
    assert is_stuck(processing=(Processing(payloads.CHAPTERS, "b", 1, 300, 600.0),)) == []
    assert is_stuck(processing=(Processing(payloads.CHAPTERS, "b", 3, 300, 3661.0),)) == [
        "3 units of chapters from b being processed, the oldest for 1 h 1 min"
    ]


def test_recounts_are_stuck_when_their_lock_outlives_both_lease_and_ten_minutes() -> None:
    assert is_stuck(recounts=Recounts(2, 0, None, 2, 600.0, 0)) == []
    locked = Recounts(2, 0, None, 2, 700.0, 0)
    assert is_stuck(recounts=locked) == ["2 recounts locked, the oldest for 11 min 40 s"]
    assert stuck(replace(EMPTY, recounts=locked), lease_seconds=900) == []


def test_a_task_of_maintenance_is_stuck_when_it_is_overdue_for_more_than_five_minutes() -> None:
    assert is_stuck(workers=(worker(),), maintenance=(task(overdue_seconds=300.0),)) == []
    assert is_stuck(workers=(worker(),), maintenance=(task(overdue_seconds=301.0), task("minutes"))) == [
        "task jobs of maintenance is overdue by 5 min 1 s"
    ]


def test_where_no_worker_runs_overdue_maintenance_is_one_line() -> None:
    overdue = (task(overdue_seconds=400.0), task("minutes", overdue_seconds=7200.0))
    assert is_stuck(maintenance=overdue) == [
        "maintenance is overdue by 2 h 0 min, and no worker is running: start one, or run novel maintenance"
    ]


# -- as text --------------------------------------------------------------------------------------------


def text(status: QueueStatus) -> list[str]:
    return click.unstyle(as_text(status, lease_seconds=LEASE_SECONDS)).splitlines()


def test_an_empty_queue_is_said_in_a_few_lines() -> None:
    assert text(EMPTY) == [
        "The queue is empty: nothing waits, and nothing is being processed.",
        "Keeps up?  yes: nothing is due",
        "Stuck?     nothing",
        "Failed?    nothing",
        "",
        "Workers",
        "None is running.",
        "",
        "Recounts",
        "No story waits for one.",
        "",
        "Maintenance",
        "No task has run yet.",
    ]


def test_the_answers_come_first_and_every_figure_below() -> None:
    lines = text(EVERYTHING)
    assert lines[:5] == [
        "Keeps up?  yes: what is due has waited for 12 s at most",
        "Stuck?     1 recount due, and no worker for that is running: start one with novel recount-worker stories",
        "Failed?    dead letters: 3, failed: 1",
        "           see which could be queued again with: novel replay-dead-letter --dry-run",
        "",
    ]
    rows = {" ".join(line.split()) for line in lines}
    assert {
        "chapters truyen-a 1,503 2 1,500 10 s 1 2",
        "stories truyen-a 300 2 5 s",
        "chapters dead letter apply_failed 3 1 day 0 h ago",
        "chapters failed none 1 30 s ago",
        "7 chapters host-1 77 1 min 30 s 1 s ago 0 0 well",
        "8 stories host-1 77 1 min 30 s 1 s ago 2 300 well",
        "4 stories: 1 due (the oldest for 12 s), 2 locked, 1 to be tried again",
        "jobs 1 h 0 min ago 1.2 s 1,234 1 min 1 s well",
        "minutes never 1.2 s 1,234 1 min 1 s running in worker 7",
    } <= rows


def test_what_is_late_or_overdue_is_said_in_its_row_and_in_red() -> None:
    late = replace(
        EMPTY, workers=(worker(heartbeat_seconds=90.0), worker()), maintenance=(task(overdue_seconds=400.0),)
    )
    rows = {" ".join(line.split()) for line in text(late)}
    assert "7 chapters host-1 77 1 min 30 s 1 min 30 s ago 0 0 late" in rows
    assert "jobs never 1.2 s 1,234 1 min 1 s overdue by 6 min 40 s" in rows
    assert "\x1b[31mworker 7 (chapters" in as_text(late, lease_seconds=LEASE_SECONDS)
    assert "\x1b[" not in as_text(EMPTY, lease_seconds=LEASE_SECONDS)


def test_a_queue_that_is_behind_says_by_how_much() -> None:
    behind = replace(EMPTY, waiting=(waiting(oldest=3700.0),), workers=(worker(),))
    assert text(behind)[0] == (
        "Keeps up?  no: what is due has waited for up to 1 h 1 min; more than 5 min 0 s is too long"
    )


def test_more_failures_than_are_counted_are_shown_as_so_many_or_more() -> None:
    many = replace(EMPTY, failures=(Failures(payloads.CHAPTERS, "dead_letter", "x", MAX_COUNTED, 1.0),))
    lines = text(many)
    assert "Failed?    dead letters: 10000+, failed: 0" in lines
    assert "Failed, the newest 10000 of a state counted" in lines


def test_an_unknown_job_type_is_shown_as_it_is() -> None:
    assert queue_view.job_type_name("feeds") == "feeds"
    odd = replace(EMPTY, waiting=(waiting(job_type="feeds"),))
    assert any(line.startswith("feeds ") for line in text(odd))


# -- as JSON --------------------------------------------------------------------------------------------


def test_the_json_has_everything_and_can_be_written() -> None:
    told = json.loads(json.dumps(as_json(EVERYTHING, lease_seconds=LEASE_SECONDS)))
    assert (told["taken_at"], told["keeps_up"], told["oldest_due_seconds"]) == ("2026-07-31T10:00:00Z", True, 12.0)
    assert len(told["stuck"]) == 1
    assert (told["waiting_items"], told["due_items"], told["processing_items"]) == (1503, 1500, 300)
    assert (told["dead_letter_items"], told["failed_items"]) == (3, 1)
    assert (told["dead_letter_items_capped"], told["failed_items_capped"]) == (False, False)
    assert told["waiting"][0]["waiting_for_story_items"] == 1
    assert told["processing"][0]["oldest_claim_seconds"] == 5.0
    assert told["failures"][0]["error_code"] == "apply_failed"
    assert [one["late"] for one in told["workers"]] == [False, False]
    assert [one["finished_at"] for one in told["maintenance"]] == ["2026-07-31T09:00:00Z", None]
    assert (told["abandoned"], told["recounts"]["locked"]) == ({"units": 0, "items": 0}, 2)


def test_the_json_of_an_empty_queue_has_the_same_keys() -> None:
    assert as_json(EMPTY, lease_seconds=1).keys() == as_json(EVERYTHING, lease_seconds=1).keys()


# -- words and tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (86399.6, "1 day 0 h"),
        (90000, "1 day 1 h"),
        (864000000, "10,000 days 0 h"),
    ],
)
def test_a_span_is_said_in_the_two_units_that_matter(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_a_name_in_brackets_is_no_markup_and_a_line_is_never_broken() -> None:
    shown = table(("A", "B"), [("[red]x[/red]", "y" * 500), ("Đấu Phá", "")])
    assert shown.splitlines() == [f"A{' ' * 13}B", f"[red]x[/red]  {'y' * 500}", "Đấu Phá"]


def test_on_a_terminal_a_table_is_as_wide_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("COLUMNS", "40")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        shown = click.unstyle(table(("A", "B"), [("x" * 30, "y" * 30)]))
    os.close(ours)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert max(map(len, shown.splitlines())) <= 40
