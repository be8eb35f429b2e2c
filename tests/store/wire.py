"""A wire between a client and the database server that a test can cut, or hold still, at a chosen moment."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from runtime.addresses import DatabaseAddress


class Wire:
    """Passes bytes on until a statement comes by that it was told to watch for."""

    def __init__(self, server: DatabaseAddress) -> None:
        self._server = server
        self._writers: list[asyncio.StreamWriter] = []
        self.cut_before: bytes | None = None
        """Cut when the client sends this, before the server gets it."""
        self.cut_answer_to: bytes | None = None
        """Let the server have this and answer it, but cut before the answer arrives."""
        self.hold_answer_to: bytes | None = None
        """Let the server have this and answer it, and from then on pass nothing on to the client."""
        self.is_held = False
        """Pass nothing on to the client."""
        self.cuts = 0
        self.address = server

    @contextlib.asynccontextmanager
    async def laid(self) -> AsyncIterator["Wire"]:
        listener = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = replace(self._server, host="127.0.0.1", port=listener.sockets[0].getsockname()[1])
        async with listener:
            try:
                yield self
            finally:
                self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _carry(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(self._server.host, self._server.port)
        self._writers += [to_client, to_server]
        mute = asyncio.Event()
        with contextlib.suppress(OSError):
            await asyncio.gather(self._up(client, to_server, mute), self._down(server, to_client, mute))

    async def _up(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, mute: asyncio.Event) -> None:
        while data := await client.read(65536):
            if self.cut_before and self.cut_before in data:
                self.cut_before = None
                self._count_cut()
                return
            if self.cut_answer_to and self.cut_answer_to in data:
                self.cut_answer_to = None
                mute.set()
            if self.hold_answer_to and self.hold_answer_to in data:
                self.hold_answer_to = None
                self.is_held = True
            to_server.write(data)
        to_server.close()

    async def _down(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, mute: asyncio.Event) -> None:
        while data := await server.read(65536):
            if mute.is_set():
                self._count_cut()
                return
            if not self.is_held:
                to_client.write(data)
        to_client.close()

    def _count_cut(self) -> None:
        self.cuts += 1
        self.cut()
