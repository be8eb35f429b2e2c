"""Counts in this process: pure, with the time as an argument."""

import pytest

from store import local_windows
from store.local_windows import LocalWindows
from store.rate_windows import Limit

LIMIT = Limit(requests=3)
NOW = 1_771_660_800.0


def taken(windows: LocalWindows, *seconds: float, scope: str = "a", limit: Limit = LIMIT) -> list[int]:
    """What the requests at these seconds are told."""
    return [windows.take(scope, limit, now=NOW + second) for second in seconds]


def test_past_the_limit_a_scope_has_to_wait_until_its_oldest_request_is_a_window_old() -> None:
    assert taken(LocalWindows(), 0, 10, 20, 20, 59) == [0, 0, 0, 40, 1]


def test_the_window_slides() -> None:
    assert taken(LocalWindows(), 0, 10, 20, 60, 61, 70, 80, 80) == [0, 0, 0, 0, 9, 0, 0, 40]


def test_what_is_refused_is_not_counted() -> None:
    assert taken(LocalWindows(), 0, 0, 0, *[1] * 100, 60, 60, 60, 60) == [0, 0, 0, *[59] * 100, 0, 0, 0, 60]


def test_many_in_one_second_are_counted_one_by_one() -> None:
    windows = LocalWindows()
    limit = Limit(requests=1000)
    assert taken(windows, *[0.5] * 1001, limit=limit) == [0] * 1000 + [60]
    assert taken(windows, 60.0, limit=limit) == [0]


def test_scopes_are_counted_apart() -> None:
    windows = LocalWindows()
    assert taken(windows, 0, 0, 0, 0) == [0, 0, 0, 60]
    assert taken(windows, 0, scope="b") == [0]


def test_a_longer_window_has_longer_steps() -> None:
    limit = Limit(requests=1, window_seconds=600)
    assert taken(LocalWindows(), 0, 1, 590, 599, 600, limit=limit) == [0, 599, 10, 1, 0]


def test_a_clock_that_goes_back_does_not_let_more_in() -> None:
    assert all(taken(LocalWindows(), 10, 9, 8, 7, 10)[3:])


def test_only_so_many_scopes_are_remembered_and_the_one_not_seen_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_windows, "MAX_SCOPES", 3)
    windows = LocalWindows()
    limit = Limit(requests=1)
    for scope in "abcad":  # b is the one not seen for longest
        windows.take(scope, limit, now=NOW)
    assert windows.take("a", limit, now=NOW) > 0
    assert windows.take("b", limit, now=NOW) == 0
