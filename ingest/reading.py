"""Reads a request's body: hashed while it arrives, within a deadline, and within what the process may hold."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.requests import Request

from ingest.errors import BodyTooSlow
from runtime.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Body:
    content: bytearray
    sha256: str


class Buffers:
    """How many bytes of bodies this process holds. Who would take it past its limit is turned away."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0

    @contextlib.asynccontextmanager
    async def read(self, request: Request, *, seconds: float) -> AsyncIterator[Body]:
        """The whole body, held until the block ends."""
        content = bytearray()
        digest = hashlib.sha256()
        try:
            try:
                async with asyncio.timeout(seconds):
                    async for piece in request.stream():
                        self._held_bytes += len(piece)
                        content += piece
                        if self._held_bytes > self._max_bytes:
                            raise Unavailable("Too many large batches at once. Try again in a moment.")
                        digest.update(piece)
            except TimeoutError:
                raise BodyTooSlow(headers={"Connection": "close"}) from None
            yield Body(content, digest.hexdigest())
        finally:
            self._held_bytes -= len(content)
