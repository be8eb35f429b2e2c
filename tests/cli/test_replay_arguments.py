"""What may be typed behind `novel replay-dead-letter`: times, rates, and how a rate becomes pieces."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import queue
from store import replays


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("-24 hours", timedelta(hours=24)),
        ("24h", timedelta(hours=24)),
        ("90m", timedelta(minutes=90)),
        ("90 mins ago", timedelta(minutes=90)),
        (" 2 days ", timedelta(days=2)),
        ("1 Day Ago", timedelta(days=1)),
        ("3w", timedelta(weeks=3)),
        ("30 sec", timedelta(seconds=30)),
        ("0s", timedelta(0)),
        ("3650 days", timedelta(days=3650)),
        ("2026-07-31", datetime(2026, 7, 31)),
        ("2026-07-31 10:00", datetime(2026, 7, 31, 10)),
        ("2026-07-31T10:00:00Z", datetime(2026, 7, 31, 10)),
        ("2026-07-31T10:00:00+07:00", datetime(2026, 7, 31, 3)),
    ],
)
def test_since_is_how_long_ago_or_when(text: str, since: timedelta | datetime) -> None:
    assert queue.since_form(text) == since


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "yesterday", "5", "5 ms", "2 ds", "5 months", "1.5 h", "h", "١h", "24:00", "2026-13-01"),
        *("2026-02-30", "0001-01-01T00:00:00+07:00"),
    ],
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time\. Say how long ago \(-24 hours, 2 days\) or when"):
        queue.since_form(text)


@pytest.mark.parametrize("text", ["3651 days", "999999999 weeks", "999999999d", "99999999 hours"])
def test_what_is_too_long_ago_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too long ago: at most 3650 days"):
        queue.since_form(text)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_a_time_with_its_zone_is_the_same_moment_in_utc(moment: datetime, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    elsewhere = moment.replace(tzinfo=UTC).astimezone(zone)
    assert queue.since_form(elsewhere.isoformat()) == moment


@given(st.text(max_size=30))
def test_whatever_is_typed_as_a_time_is_a_time_or_an_error_of_usage(text: str) -> None:
    try:
        since = queue.since_form(text)
    except ValueError:
        return
    assert isinstance(since, timedelta | datetime)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "-inf", "fast", "", "0.009", "1e-300"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no rate\. Give items per second, at least 0\.01"):
        queue.rate_form(text)


@pytest.mark.parametrize(
    ("rate", "size"), [(None, replays.PIECE_JOBS), (0.01, 1), (1.0, 1), (2.9, 2), (1e9, replays.PIECE_JOBS)]
)
def test_a_piece_is_as_much_as_a_second_allows(rate: float | None, size: int) -> None:
    assert queue.piece_jobs(rate) == size
