"""When a failed item is tried again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.worker_settings import WorkerSettings
from worker import backoff

DELAYS = WorkerSettings().retry_seconds


@pytest.mark.parametrize(("failures", "seconds"), [(1, 30), (2, 120), (3, 600), (4, 1800), (5, 3600), (6, 3600)])
def test_delays_grow_as_specified_and_the_last_one_stays(failures: int, seconds: float) -> None:
    assert backoff.delay_seconds(failures, DELAYS, jitter=0.5) == pytest.approx(seconds)


@settings(deadline=None, max_examples=50)
@given(failures=st.integers(1, 1000), jitter=st.floats(0, 1))
def test_jitter_is_a_fifth_more_or_less(failures: int, jitter: float) -> None:
    middle = DELAYS[min(failures, 5) - 1]
    delay = backoff.delay_seconds(failures, DELAYS, jitter=jitter)
    assert delay == pytest.approx(middle * (0.8 + 0.4 * jitter))


def test_what_failed_together_comes_back_apart() -> None:
    earliest, latest = (backoff.delay_seconds(1, DELAYS, jitter=jitter) for jitter in (0.0, 1.0))
    assert earliest == pytest.approx(24)
    assert latest == pytest.approx(36)


def test_no_delay_stays_none_whatever_the_jitter() -> None:
    assert backoff.delay_seconds(3, (0.0,), jitter=1.0) == 0
