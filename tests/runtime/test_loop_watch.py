"""The event loop's delay is measured, so that whatever blocks it can be seen."""

import asyncio
import time

from runtime import loop_watch


def late(more_than: float) -> float:
    """How many sleepers woke that much too late, so far."""
    samples = {
        sample.labels["le"]: sample.value
        for sample in next(iter(loop_watch.DELAY.collect())).samples
        if sample.name.endswith("_bucket")
    }
    return samples["+Inf"] - samples[str(more_than)]


async def test_a_blocked_loop_is_seen() -> None:
    before = late(0.25)
    async with loop_watch.watching():
        await asyncio.sleep(loop_watch.EVERY_SECONDS * 2)
        time.sleep(0.4)
        await asyncio.sleep(loop_watch.EVERY_SECONDS * 2)
    assert late(0.25) == before + 1


async def test_it_ends_with_its_block() -> None:
    tasks = len(asyncio.all_tasks())
    async with loop_watch.watching():
        assert len(asyncio.all_tasks()) == tasks + 1
    assert len(asyncio.all_tasks()) == tasks
