"""How late the event loop is: whatever holds it longer than a moment holds up every request of the process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from prometheus_client import Histogram

# A block is seen less by as much as was left of a sleep.
EVERY_SECONDS = 0.01

DELAY = Histogram(
    "novel_event_loop_delay_seconds",
    "How much later than asked the event loop woke a sleeper",
    buckets=(0.001, 0.005, 0.01, 0.02, 0.04, 0.05, 0.1, 0.25, 1.0),
)


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[None]:
    """Measure as long as the block runs."""
    task = asyncio.create_task(_watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _watch() -> None:
    loop = asyncio.get_running_loop()
    while True:
        asked = loop.time()
        await asyncio.sleep(EVERY_SECONDS)
        DELAY.observe(max(0.0, loop.time() - asked - EVERY_SECONDS))
