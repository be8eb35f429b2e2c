"""When to try again, and after how long: the spec's retry contract. Pure; time and chance come in as arguments."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED = frozenset({408, 429, 500, 502, 503, 504})
# The server sets the pace with these: as long as batches get through, they are no failure.
PACING = frozenset({429, 503})

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 60.0
# Nobody sits and waits longer than that for one batch.
MAX_RETRY_AFTER_SECONDS = 3600.0


def delay(attempt: int, *, retry_after: float | None, chance: float) -> float:
    """Seconds to wait after the attempt of this number, from 1; `chance` is from 0 to 1.

    Never shorter than what the server asked for, and a little apart from other clients that it asked too.
    """
    seconds = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempt - 1, 30), MAX_DELAY_SECONDS) * (0.8 + 0.4 * chance)
    if retry_after is None:
        return seconds
    return retry_after + min(seconds, 1.0 + retry_after / 10) * chance


def retry_after_seconds(value: str | None, *, now: datetime) -> float | None:
    """What a Retry-After header asks for: seconds, or a date."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        when = http_date(value)
        if when is None:
            return None
        seconds = (when - now).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def http_date(value: str | None) -> datetime | None:
    try:
        when = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
