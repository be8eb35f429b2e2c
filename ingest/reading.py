"""Reads a request's body: hashed while it arrives, no larger, no slower and no more at a time than may be."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.requests import Request

from ingest.errors import BodyTooSlow
from ingest.room import Hold, Room
from runtime.errors import PayloadTooLarge

# Who sends less than this, after a while to begin, only wants to hold the room.
LEAST_BYTES_PER_SECOND = 16 << 10
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Body:
    content: bytearray
    sha256: str
    hold: Hold


@contextlib.asynccontextmanager
async def body(request: Request, room: Room, *, max_bytes: int, seconds: float, owner: str) -> AsyncIterator[Body]:
    """The whole body, in its room until the block ends."""
    declared = request.headers.get("content-length", "")
    is_known = declared.isascii() and declared.isdigit() and len(declared) < 16
    expected = 0 if not declared and "transfer-encoding" not in request.headers else max_bytes
    size = min(int(declared), max_bytes) if is_known else expected
    async with room.held(size, owner=owner, wait_seconds=seconds) as hold:
        content = bytearray()
        digest = hashlib.sha256()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout_at(started + min(seconds, GRACE_SECONDS)) as deadline:
                async for piece in request.stream():
                    content += piece
                    if len(content) > max_bytes:
                        raise PayloadTooLarge(f"The request body is larger than {max_bytes} bytes.")
                    digest.update(piece)
                    patience = GRACE_SECONDS + len(content) / LEAST_BYTES_PER_SECOND
                    deadline.reschedule(started + min(seconds, patience))
        except TimeoutError:
            raise BodyTooSlow(headers={"Connection": "close"}) from None
        yield Body(content, digest.hexdigest(), hold)
