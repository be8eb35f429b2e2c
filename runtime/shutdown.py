"""Graceful stop: one event per process, set by SIGTERM or SIGINT, that every loop waits on.

Protocol: the first signal asks for a stop and work drains until its deadline; a second one ends the process at
once, for the person who presses Ctrl-C twice.
"""

import asyncio
import contextlib
import os
import queue
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from runtime import logs

log = logs.get(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """A stop was asked for before the work was done."""


class Stop:
    """A stop that was asked for, or not yet. Threads use `wait`, coroutines `wait_async`."""

    def __init__(self) -> None:
        # Not a threading.Event: a signal handler that interrupts its `wait` would wait for the lock that this holds,
        # for ever. A SimpleQueue may be put to at any moment.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._listeners: list[Callable[[], None]] = []
        self.requested = False
        self.reason = ""

    def request(self, reason: str) -> None:
        if not self.requested:
            self.reason = reason
            self.requested = True
            self._wake.put(None)
            for listener in list(self._listeners):
                listener()

    def check(self) -> None:
        """Raise Stopped if a stop was asked for: between the steps of what cannot be interrupted."""
        if self.requested:
            raise Stopped(self.reason)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the stop, at most that long; says whether it was asked for."""
        if not self.requested:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=None if seconds is None else max(0.0, seconds))
                self._wake.put(None)  # for the next who waits
        return self.requested

    async def wait_async(self) -> None:
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()

        def listener() -> None:
            loop.call_soon_threadsafe(heard.set)

        self._listeners.append(listener)
        try:
            if not self.requested:
                await heard.wait()
        finally:
            self._listeners.remove(listener)


@contextlib.contextmanager
def on_signals(stop: Stop) -> Iterator[Stop]:
    """Route SIGTERM and SIGINT to the stop while the block runs. Only in the main thread."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            os._exit(128 + number)
        stop.request(signal.Signals(number).name)

    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
