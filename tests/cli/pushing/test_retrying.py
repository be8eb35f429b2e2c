from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from cli.pushing import retrying

NOW = datetime(2026, 2, 21, 8, 0, 0, tzinfo=UTC)


def test_what_is_tried_again_is_what_the_contract_says() -> None:
    assert set(retrying.RETRIED) == {408, 429, 500, 502, 503, 504}


def test_delays_double_up_to_a_minute_with_jitter() -> None:
    middle = [retrying.delay(attempt, retry_after=None, chance=0.5) for attempt in range(1, 10)]
    assert middle == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert retrying.delay(3, retry_after=None, chance=0.0) == pytest.approx(1.6)
    assert retrying.delay(3, retry_after=None, chance=1.0) == pytest.approx(2.4)
    assert retrying.delay(10_000, retry_after=None, chance=1.0) == pytest.approx(72)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_nobody_comes_back_sooner_than_the_server_asked(chance: float) -> None:
    for asked in (0, 1, 30, 600):
        assert asked <= retrying.delay(1, retry_after=asked, chance=chance) <= asked * 1.1 + 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30.0),
        (" 2 ", 2.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("-5", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retrying.retry_after_seconds(value, now=NOW) == seconds
