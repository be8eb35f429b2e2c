"""The breaker, with time as an argument."""

from store.breaker import FAILURES_TO_OPEN, Breaker


def opened(now: float = 100.0) -> Breaker:
    breaker = Breaker(retry_seconds=5)
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(now)
    return breaker


def test_a_few_failures_in_a_row_open_it_and_only_the_last_begins_an_outage() -> None:
    breaker = Breaker(retry_seconds=5)
    began = []
    for _ in range(FAILURES_TO_OPEN + 2):
        began.append(breaker.failed(100.0))
    assert began == [False, False, True, False, False]
    assert not breaker.allows(104.9)


def test_failures_with_a_success_between_them_do_not_open_it() -> None:
    breaker = Breaker(retry_seconds=5)
    for _ in range(10):
        breaker.failed(100.0)
        breaker.succeeded()
    assert breaker.allows(100.0)
    assert not breaker.is_open


def test_while_open_one_call_per_interval_may_try() -> None:
    breaker = opened(100.0)
    assert [breaker.allows(now) for now in (104.0, 105.0, 105.1, 109.9, 110.0)] == [False, True, False, False, True]


def test_a_failed_try_keeps_it_open_for_another_interval() -> None:
    breaker = opened(100.0)
    assert breaker.allows(105.0)
    breaker.failed(106.0)
    assert not breaker.allows(110.9)
    assert breaker.allows(111.0)


def test_a_success_closes_it_and_ends_the_outage_once() -> None:
    breaker = opened(100.0)
    assert breaker.allows(105.0)
    assert breaker.succeeded()
    assert not breaker.succeeded()
    assert breaker.allows(105.1)
