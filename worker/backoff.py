"""When a failed item is tried again."""

from collections.abc import Sequence

JITTER = 0.2


def delay_seconds(failures: int, delays: Sequence[float], *, jitter: float) -> float:
    """Seconds to wait after that many failures; `jitter` is a random number from 0 to 1.

    A fifth more or less, so that what failed together does not come back together.
    """
    delay = delays[min(failures, len(delays)) - 1]
    return delay * (1 - JITTER + 2 * JITTER * jitter)
