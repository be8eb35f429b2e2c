"""Graceful stop: one event per process, set by SIGTERM or SIGINT, that every loop waits on.

Protocol: the first signal asks for a stop and work drains until its deadline; a second one ends the process at
once, for the person who presses Ctrl-C twice.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from runtime import logs

log = logs.get(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """A stop that was asked for, or not yet. Threads use `wait`, coroutines `wait_async`."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self.reason = ""

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self, reason: str) -> None:
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
            for listener in list(self._listeners):
                listener()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the stop, at most that long; says whether it was asked for."""
        return self._event.wait(seconds)

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
