from hypothesis import given
from hypothesis import strategies as st

from store import retry


@given(attempt=st.integers(1, 50), jitter=st.floats(0, 1))
def test_a_wait_is_bounded_and_never_negative(attempt: int, jitter: float) -> None:
    assert 0 <= retry.delay_seconds(attempt, jitter) <= retry.MAX_DELAY_SECONDS


def test_waits_grow_with_the_attempts() -> None:
    waits = [retry.delay_seconds(attempt, 1) for attempt in range(1, retry.MAX_ATTEMPTS)]
    assert waits == sorted(set(waits))


def test_jitter_keeps_two_transactions_from_meeting_again() -> None:
    assert retry.delay_seconds(3, 0.1) != retry.delay_seconds(3, 0.9)
