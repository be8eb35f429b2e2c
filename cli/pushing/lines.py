"""Lines of JSON Lines inputs, plain or compressed: read as often as needed, with the memory of one line.

What can be read only once, standard input or a pipe, is first copied to a temporary file.
"""

import contextlib
import gzip
import io
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

import click
import orjson
import zstandard

# Far more than an item may have: a longer line is no item, and is never held in memory.
MAX_LINE_BYTES = 16 << 20
STANDARD_INPUT = "-"

_PIECE_BYTES = 64 << 10
_ZSTD_PIECE_BYTES = 16 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """What an input holds at one place: data, or why it holds none that can be pushed."""

    place: str
    data: dict[str, Any] | None = None
    problem: str = ""
    skipped: str = ""


class Input(Protocol):
    """Something to push, which can be read again."""

    def lines(self, *, with_chapters: bool = True) -> Iterator[Line]:
        """Everything in it. Chapters may be left out where reading them costs much."""


class JsonLines:
    """A file of JSON Lines, or standard input."""

    def __init__(self, name: str, stack: contextlib.ExitStack) -> None:
        self.name = "stdin" if name == STANDARD_INPUT else click.format_filename(name)
        self._path = Path(name)
        self._copy: IO[bytes] | None = None
        if name == STANDARD_INPUT:
            self._copy = stack.enter_context(_copied(sys.stdin.buffer))
        elif not stat.S_ISREG(self._path.stat().st_mode):
            with self._path.open("rb") as pipe:
                self._copy = stack.enter_context(_copied(pipe))

    def lines(self, *, with_chapters: bool = True) -> Iterator[Line]:
        with self._open() as raw:
            stream = _plain(raw)
            number = 0
            while True:
                number += 1
                place = f"{self.name}:{number}"
                try:
                    text = _line(stream)
                except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
                    yield Line(place, problem=f"the file cannot be read further: {error}")
                    return
                if text == b"":
                    return
                if text is None:
                    yield Line(place, problem=f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
                elif text := _trimmed(text, is_first=number == 1):
                    yield parsed(place, text)

    @contextlib.contextmanager
    def _open(self) -> Iterator[io.BufferedReader]:
        if self._copy is None:
            with self._path.open("rb") as raw:
                yield raw
            return
        self._copy.seek(0)
        yield _zstd_reader(self._copy)


def parsed(place: str, text: bytes) -> Line:
    """What a piece of JSON says, if it is an object."""
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return Line(place, problem=f"not JSON: {error.msg}, at character {error.pos + 1}")
    if not isinstance(data, dict):
        return Line(place, problem="not a JSON object: JSON Lines have one on each line")
    return Line(place, data)


def _line(stream: io.BufferedReader) -> bytes | None:
    """The next line with its end, nothing at the end of the file, None instead of a line that is too long."""
    text = stream.readline(MAX_LINE_BYTES + 1)
    if len(text) <= MAX_LINE_BYTES or text.endswith(b"\n"):
        return text
    while text and not text.endswith(b"\n"):
        text = stream.readline(_PIECE_BYTES)
    return None


def _trimmed(text: bytes, *, is_first: bool) -> bytes:
    if is_first:
        text = text.removeprefix(_BYTE_ORDER_MARK)
    return text.strip()


def _plain(raw: io.BufferedReader) -> io.BufferedReader:
    """The stream without its compression, which its first bytes tell, whatever its name is."""
    head = raw.peek(4)
    if head.startswith(_GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw, mode="rb"), _PIECE_BYTES)
    if head.startswith(_ZSTD_MAGIC):
        return _zstd_reader(raw)
    return raw


def _zstd_reader(raw: BinaryIO | IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_ZstdFrames(raw), _PIECE_BYTES)


class _ZstdFrames(io.RawIOBase):
    """Reads Zstandard, one frame after the other. Unlike the library's reader it notices an end that is too early."""

    def __init__(self, raw: BinaryIO | IO[bytes]) -> None:
        self._raw = raw
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._unread = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            piece = self._unread or self._raw.read(_ZSTD_PIECE_BYTES)
            self._unread = b""
            if not piece:
                if self._frame is not None:
                    raise EOFError("the compressed data ends in the middle")
                return 0
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = memoryview(self._frame.decompress(piece))
            if self._frame.eof:
                self._unread = self._frame.unused_data
                self._frame = None
        taken = min(len(buffer), len(self._ready))
        buffer[:taken] = self._ready[:taken]
        self._ready = self._ready[taken:]
        return taken


@contextlib.contextmanager
def _copied(stream: BinaryIO | IO[bytes]) -> Iterator[IO[bytes]]:
    """A temporary file with all that the stream has, compressed, gone when the block ends."""
    with tempfile.TemporaryFile(prefix="novel-push-") as copy:
        with zstandard.ZstdCompressor(level=1).stream_writer(copy, closefd=False) as writer:
            while piece := stream.read(_PIECE_BYTES):
                writer.write(piece)
        yield copy
