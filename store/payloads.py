"""What the queue carries: an item as the door has checked it, so that a worker passes its bytes through.

The items of a request are frames, one after the other, in one blob (or several, each below `MAX_BLOB_BYTES`); a job row
says where its frame begins and how long it is. A frame is a msgpack array whose first element names its kind. A
chapter's body is in it as it will be stored: normalised, hashed and compressed once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

import msgspec

STORIES: Final = "stories_bulk"
CHAPTERS: Final = "chapters_bulk"
REBUILD_STATS: Final = "rebuild_stats"

# Big enough for one blob per ordinary batch; a statement with it fits into any server's max_allowed_packet.
MAX_BLOB_BYTES = 4 << 20
ENCODING = "msgpack"


class Frame(msgspec.Struct, array_like=True, tag=True, frozen=True, kw_only=True):
    """Fields are only ever added, at the end and with a default: frames of an older door wait in the queue."""


class StoryFrame(Frame, tag="story", frozen=True, kw_only=True):
    source_story_id: str
    updated_at_source: datetime
    deleted: bool = False
    slug: str = ""
    title: str = ""
    title_original: str | None = None
    author_name: str | None = None
    status: int | None = None
    cover_url: str | None = None
    summary: str | None = None
    language: str | None = None
    aliases: tuple[str, ...] | None = None
    """None: the batch said nothing of them, and they stay as they are."""
    genres: tuple[str, ...] | None = None
    given: tuple[str, ...] = ()
    """The optional fields that the item had, so that an explicit null is told from silence."""


class Content(msgspec.Struct, array_like=True, frozen=True):
    """A chapter's body as it is stored. Hash and size are of the bytes before compression."""

    stored: bytes
    encoding: str
    sha256: bytes
    size: int


class ChapterFrame(Frame, tag="chapter", frozen=True, kw_only=True):
    source_story_id: str
    updated_at_source: datetime
    source_chapter_id: str | None = None
    chapter_no: Decimal | None = None
    """None only when a chapter is deleted by its source_chapter_id."""
    deleted: bool = False
    slug: str = ""
    title: str = ""
    published_at: datetime | None = None
    is_published: bool | None = None
    content: Content | None = None


AnyFrame = StoryFrame | ChapterFrame


@dataclass(frozen=True, slots=True)
class Item:
    """One accepted item: its job row, and its frame."""

    index: int
    external_ref: str
    payload_sha256: bytes
    frame: bytes


@dataclass(frozen=True, slots=True)
class Blob:
    items: tuple[Item, ...]

    @property
    def content(self) -> bytes:
        return b"".join(item.frame for item in self.items)

    @property
    def size_bytes(self) -> int:
        return sum(len(item.frame) for item in self.items)


_ENCODER = msgspec.msgpack.Encoder(decimal_format="string")
_DECODER: msgspec.msgpack.Decoder[AnyFrame] = msgspec.msgpack.Decoder(StoryFrame | ChapterFrame)


def encode(frame: AnyFrame) -> bytes:
    return _ENCODER.encode(frame)


def decode(frame: bytes | memoryview) -> AnyFrame:
    return _DECODER.decode(frame)


def decode_many(places: Iterable[tuple[bytes, int, int]]) -> list[AnyFrame | None]:
    """Frames by the content they are in, their offset and size there; None for one that cannot be read."""
    found: list[AnyFrame | None] = []
    for content, offset, size in places:
        try:
            found.append(decode(memoryview(content)[offset : offset + size]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            found.append(None)
    return found


def blobs(items: Sequence[Item], *, max_bytes: int = MAX_BLOB_BYTES) -> list[Blob]:
    """The items in order, in as few blobs as their sizes allow."""
    found: list[Blob] = []
    waiting: list[Item] = []
    size = 0
    for item in items:
        if waiting and size + len(item.frame) > max_bytes:
            found.append(Blob(tuple(waiting)))
            waiting, size = [], 0
        waiting.append(item)
        size += len(item.frame)
    if waiting:
        found.append(Blob(tuple(waiting)))
    return found
