"""A circuit breaker: after a few failures in a row, leave a server alone for a while, then let one call try it."""

FAILURES_TO_OPEN = 3


class Breaker:
    """Pure: the time comes in as an argument."""

    def __init__(self, *, retry_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._failures = 0
        self._closed_again_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._failures >= FAILURES_TO_OPEN

    def allows(self, now: float) -> bool:
        """Whether a call may go through. While open, one call per retry interval may."""
        if not self.is_open:
            return True
        if now < self._closed_again_at:
            return False
        self._closed_again_at = now + self._retry_seconds
        return True

    def succeeded(self) -> bool:
        """Note a success; says whether it ended an outage."""
        ended, self._failures = self.is_open, 0
        return ended

    def failed(self, now: float) -> bool:
        """Note a failure; says whether an outage begins with it."""
        was_open = self.is_open
        self._failures += 1
        if self.is_open:
            self._closed_again_at = now + self._retry_seconds
        return self.is_open and not was_open
