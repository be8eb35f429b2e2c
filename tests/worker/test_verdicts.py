"""From what a handler says of an item to what is written."""

import itertools
from datetime import datetime

import orjson
import pytest

from runtime.worker_settings import WorkerSettings
from store.jobs import COMPLETED, DEAD, FAILED, QUEUED, Job, Verdict
from store.units import Unit
from worker import verdicts
from worker.handler import Done, GiveUp, Outcome, TryAgain

NOW = datetime(2026, 1, 1)  # as the database says it
SETTINGS = WorkerSettings()
_ids = itertools.count(1)


def job(
    *, failures: int = 0, unit_id: int = 1, index: int = 0, source: str = "a", job_type: str = "chapters_bulk"
) -> Job:
    unit = Unit(unit_id, job_type, source, "request", 1, 0, 9, 10, 100, failures, 0, NOW, NOW)
    return Job(next(_ids), unit, index, 100, None)


def verdict(outcome: Outcome, *, settings: WorkerSettings = SETTINGS) -> Verdict:
    (found,) = verdicts.of([outcome], settings)
    return found


@pytest.mark.parametrize("is_stale", [False, True])
def test_what_is_done_is_completed_however_often_it_had_failed(is_stale: bool) -> None:
    made = verdict(Done(job(failures=4), is_stale))
    assert (made.status, made.is_stale, made.attempts, made.code, made.delay_seconds) == (
        COMPLETED,
        is_stale,
        5,
        None,
        0,
    )


def test_what_is_given_up_has_failed_at_the_first_attempt() -> None:
    made = verdict(GiveUp(job(), "slug_conflict", "Why."))
    assert (made.status, made.attempts, made.code, made.message) == (FAILED, 1, "slug_conflict", "Why.")


def test_what_is_tried_again_waits_longer_each_time_and_is_dead_after_the_last_attempt() -> None:
    made = [verdict(TryAgain(job(failures=failures), "code", "Why.")) for failures in range(5)]
    assert [one.status for one in made] == [QUEUED] * 4 + [DEAD]
    assert [one.attempts for one in made] == [1, 2, 3, 4, 5]
    for one, seconds in zip(made, (30, 120, 600, 1800), strict=False):
        assert 0.8 * seconds <= one.delay_seconds <= 1.2 * seconds
    assert {one.code for one in made} == {"code"}


def test_an_item_that_had_more_failures_than_are_allowed_now_is_dead() -> None:
    assert verdict(TryAgain(job(failures=7), "code", "Why.")).status == DEAD
    assert verdict(TryAgain(job(), "code", "Why."), settings=WorkerSettings(max_attempts=1)).status == DEAD


def test_retries_are_spread() -> None:
    delays = {one.delay_seconds for one in verdicts.of([TryAgain(job(), "code", "") for _ in range(50)], SETTINGS)}
    assert len(delays) == 50


def test_who_waits_for_a_story_says_so_until_it_is_dead() -> None:
    def waiting(failures: int) -> Verdict:
        return verdict(TryAgain(job(failures=failures), "story_not_found", "Why.", waits_for_story="s1"))

    assert waiting(0).waiting_for == "s1"
    assert waiting(4).status == DEAD
    assert waiting(4).waiting_for is None


def test_verdicts_are_in_the_order_of_units_and_items() -> None:
    places = [(2, 1), (1, 5), (2, 0), (10, 0), (1, 4)]
    made = verdicts.of([Done(job(unit_id=unit_id, index=index)) for unit_id, index in places], SETTINGS)
    assert [(one.job.unit.id, one.job.index) for one in made] == sorted(places)


def test_every_outcome_is_tallied_by_type_and_source() -> None:
    outcomes: list[Outcome] = [
        Done(job()),
        Done(job()),
        Done(job(), is_stale=True),
        GiveUp(job(), "c", "m"),
        TryAgain(job(), "c", "m"),
        TryAgain(job(failures=4), "c", "m"),
        Done(job(source="b")),
        Done(job(job_type="stories_bulk")),
    ]
    assert verdicts.tally(verdicts.of(outcomes, SETTINGS)) == {
        ("chapters_bulk", "a"): {"completed": 2, "stale": 1, "failed": 1, "retried": 1, "dead": 1},
        ("chapters_bulk", "b"): {"completed": 1},
        ("stories_bulk", "a"): {"completed": 1},
    }
    assert verdicts.tally([]) == {}


def test_an_error_that_nobody_foresaw_is_told_in_one_short_line() -> None:
    found = verdicts.unexpected(job(), ValueError("one\n  two\t" + "x" * 1000))
    assert found.code == verdicts.UNEXPECTED
    assert found.message.startswith("ValueError: one two xxx")
    assert len(found.message) == len("ValueError: ") + verdicts.MAX_ERROR_CHARACTERS
    assert verdicts.unexpected(job(), KeyError()).message == "KeyError: "


def test_an_error_that_is_no_valid_text_can_be_written_all_the_same() -> None:
    found = verdicts.unexpected(job(), OSError("name \udcff of a file"))
    assert found.message == "OSError: name ? of a file"
    assert orjson.dumps(found.message)
