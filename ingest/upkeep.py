"""Throws away what has had its time: nonces and counts of quotas. A little, now and then, in each process."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from runtime import logs
from store import errors, nonces, rate_windows
from store.pool import Pool

log = logs.get(__name__)

EVERY_SECONDS = 300.0


@contextlib.asynccontextmanager
async def running(pool: Pool) -> AsyncIterator[None]:
    task = asyncio.create_task(_loop(pool))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def purge(pool: Pool) -> int:
    """Delete what has expired, piece by piece; returns how many rows."""
    deleted = 0
    for table, most in ((nonces, nonces.PURGE_ROWS), (rate_windows, rate_windows.PURGE_ROWS)):
        while True:
            async with pool.reading() as conn:
                count = await table.purge(conn)
            deleted += count
            if count < most:
                break
    return deleted


async def _loop(pool: Pool) -> None:
    while True:
        await asyncio.sleep(EVERY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311  not all processes at once
        try:
            log.debug("ingest.purged", rows=await purge(pool))
        except (errors.StoreError, errors.ServerRefused) as error:
            log.warning("ingest.purge_failed", error=repr(error))
