"""Where batches are worked on: off the event loop, and few at a time, so that memory and processors stay bounded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
THREADS = 2
# Less than this is done sooner than a thread is woken.
SMALL_BYTES = 16 << 10


class Stage:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="batch")

    async def run(self, work: Callable[[], T], *, size_bytes: int) -> T:
        if size_bytes <= SMALL_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Turns:
    """Lets those that want the same thing go one after the other, so that one does the work and the others find it."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, thing: Hashable) -> AsyncIterator[None]:
        lock, users = self._locks.get(thing, (asyncio.Lock(), 0))
        self._locks[thing] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(thing)
            if users > 1:
                self._locks[thing] = lock, users - 1
