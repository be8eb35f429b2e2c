import pytest

from cli.pushing.items import CHAPTERS, STORIES, Rejection
from cli.pushing.report import MAX_SHOWN, Failure, Report


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def report(said: list[str]) -> Report:
    return Report(said.append)


def test_a_push_that_went_well_is_one_line(report: Report, said: list[str]) -> None:
    report.expected.update(stories=2, chapters=600)
    report.accept(STORIES, 2)
    report.accept(CHAPTERS, 300)
    report.accept(CHAPTERS, 300)
    assert report.lines() == ["Accepted 602 (stories: 2, chapters: 600, batches: 3), rejected 0, failed 0."]
    assert report.went_well
    assert said == []


def test_the_first_rejections_are_shown_and_the_others_counted(report: Report, said: list[str]) -> None:
    for number in range(1, 51):
        report.reject(Rejection(f"f:{number}", "empty", "title is empty."))
    assert len(said) == MAX_SHOWN
    assert said[0] == "f:1: empty: title is empty."
    assert report.lines()[0] == "... and 30 more were rejected."
    assert len(report.as_json()["rejections"]) == MAX_SHOWN
    assert report.as_json()["rejected"] == 50
    assert not report.went_well


def test_the_first_failures_are_shown_and_the_others_counted(report: Report, said: list[str]) -> None:
    report.failed_later = 50
    for number in range(50):
        report.fail(Failure(f"s{number}", "story_gone", "No."))
    assert len(said) == MAX_SHOWN
    assert report.lines()[0] == "... and 30 more failed."


def test_what_was_not_sent_is_told_apart_from_what_was_never_good(report: Report) -> None:
    report.expected.update(stories=10)
    report.reject(Rejection("f:1", "invalid_line", "not JSON"))
    report.unreadable += 1
    report.accept(STORIES, 4)
    report.reject(Rejection("f:9", "empty", "title is empty."))
    report.give_up("f:10 to f:11", 2, "status 500")
    assert report.unsent == 3
    assert "Not sent: 3. Push the same files again: what was accepted is not taken twice." in report.lines()


def test_waiting_items_are_told_when_somebody_waited(report: Report) -> None:
    report.expected.update(stories=10)
    report.accept(STORIES, 10)
    assert len(report.lines()) == 1
    report.waited = True
    report.processed = 4
    assert report.lines()[-1] == "Processed 4, 6 still wait in the queue."
    report.processed = 10
    assert report.lines()[-1] == "Processed 10."
