"""Turns new batches away while the queue holds more than it should: better a 503 now than an item lost later."""

import asyncio
import time

from ingest.errors import QueueFull
from runtime.settings import IngestSettings
from store import ingest_jobs
from store.ingest_jobs import Waiting
from store.pool import Pool

# How old the count may be: at least this, and so old that counting takes a twentieth of the time at most.
FRESH_SECONDS = 1.0
SHARE = 20
RETRY_AFTER_SECONDS = 15


class Backpressure:
    def __init__(self, settings: IngestSettings, pool: Pool) -> None:
        self._settings = settings
        self._pool = pool
        self._stale_at = float("-inf")
        self._waiting = Waiting(0, 0)
        self._counting = asyncio.Lock()

    async def check(self) -> None:
        waiting = await self._look()
        if waiting.items >= self._settings.queue_max_items or waiting.bytes >= self._settings.queue_max_bytes:
            raise QueueFull(retry_after_seconds=RETRY_AFTER_SECONDS)

    async def _look(self) -> Waiting:
        if time.monotonic() > self._stale_at:
            async with self._counting:
                if time.monotonic() > self._stale_at:
                    started = time.monotonic()
                    async with self._pool.reading() as conn:
                        self._waiting = await ingest_jobs.waiting(conn)
                    took = time.monotonic() - started
                    self._stale_at = time.monotonic() + max(FRESH_SECONDS, took * SHARE)
        return self._waiting
