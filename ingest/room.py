"""Memory, shared out: so many bytes of batches may be held at a time, and who finds no room waits for it a while.

One owner may hold half of the room at most, so that a few who only pretend to send do not keep everybody else out.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from runtime.errors import Unavailable

# Less than this needs no room: connections are bounded, too.
SMALL_BYTES = 64 << 10


@dataclass(slots=True)
class Hold:
    """What one request holds."""

    room: "Room"
    size: int
    owner: str | None

    async def trust(self) -> None:
        """It is no pretence: what is held counts against no owner any more."""
        await self.room._change(self, self.size, owner=None)

    async def shrink(self, size: int) -> None:
        await self.room._change(self, min(size, self.size), owner=self.owner)


class Room:
    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._of_owner: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def held(self, size: int, *, owner: str | None = None, wait_seconds: float) -> AsyncIterator[Hold]:
        """Hold so many bytes as long as the block runs."""
        hold = Hold(self, 0 if size <= SMALL_BYTES else min(size, self._max_bytes), owner)
        if hold.size:
            await self._take(hold, wait_seconds)
        try:
            yield hold
        finally:
            await self._change(hold, 0, owner=None)

    async def _take(self, hold: Hold, wait_seconds: float) -> None:
        try:
            async with asyncio.timeout(wait_seconds), self._changed:
                await self._changed.wait_for(lambda: self._has_room(hold))
                self._count(hold, 1)
        except TimeoutError:
            raise Unavailable("Too many large batches at once. Try again in a moment.") from None

    def _has_room(self, hold: Hold) -> bool:
        if self._held_bytes + hold.size > self._max_bytes:
            return False
        owned = self._of_owner[hold.owner] if hold.owner else 0
        return not owned or owned + hold.size <= self._max_bytes // 2

    async def _change(self, hold: Hold, size: int, *, owner: str | None) -> None:
        if hold.size:
            self._count(hold, -1)
            hold.size, hold.owner = size, owner
            self._count(hold, 1)
            async with self._changed:
                self._changed.notify_all()

    def _count(self, hold: Hold, sign: int) -> None:
        self._held_bytes += sign * hold.size
        if hold.owner:
            self._of_owner[hold.owner] += sign * hold.size
            if not self._of_owner[hold.owner]:
                del self._of_owner[hold.owner]
