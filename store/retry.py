"""When a whole transaction is tried again, and after how long."""

MAX_ATTEMPTS = 6
FIRST_DELAY_SECONDS = 0.005
MAX_DELAY_SECONDS = 0.5


def delay_seconds(attempt: int, jitter: float) -> float:
    """Seconds to wait after that many failed attempts; `jitter` is a random number from 0 to 1.

    Two transactions that met in a deadlock must not meet again, so the wait is anything up to its bound.
    """
    bound = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 4.0 ** (attempt - 1))
    return bound * jitter
