"""Waiting that ends early, and how long to wait while the database is away."""

import asyncio
import contextlib

FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 5.0


async def rest(until: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, but not longer; says whether it has come."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()
    return until.is_set()


class Patience:
    """Waits twice as long each time, up to a bound, until something works again."""

    def __init__(self) -> None:
        self._next_seconds = FIRST_WAIT_SECONDS

    def seconds(self) -> float:
        seconds, self._next_seconds = self._next_seconds, min(MAX_WAIT_SECONDS, self._next_seconds * 2)
        return seconds

    def restore(self) -> None:
        self._next_seconds = FIRST_WAIT_SECONDS
