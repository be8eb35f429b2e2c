"""A batch, checked: what can be queued, what was refused and why. Pure, and made to run in a thread.

All that can be done once is done here: decode, check, normalise, hash, compress. Of two items with the same identity
the one with the later `updated_at_source` is taken (the later in the batch, if they are equal).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ingest import chapters, stories
from ingest.checking import Reader, Refused
from ingest.envelope import Envelope
from ingest.items import BatchWarning, ItemError
from ingest.members import Members, NotAnObject
from store import payloads
from store.payloads import AnyFrame, Blob, ChapterFrame, Item

OLDEST = datetime(1970, 1, 1, tzinfo=UTC)
MAX_NAMES_SHOWN = 10
MAX_NAME_CHARACTERS = 60
FUTURE = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One of the two kinds of batches."""

    job_type: str
    members: Members
    item: Reader
    deletion: Reader
    frame: Callable[[dict[str, Any]], AnyFrame]
    deleted_frame: Callable[[dict[str, Any]], AnyFrame]
    external_ref: Callable[[Any], str]


@dataclass(slots=True)
class Checked:
    source: str
    total: int
    errors: list[ItemError] = field(default_factory=list)
    warnings: list[BatchWarning] = field(default_factory=list)
    blobs: list[tuple[Blob, bytes]] = field(default_factory=list)
    """With their SHA-256."""

    @property
    def accepted(self) -> int:
        return sum(len(blob.items) for blob, _ in self.blobs)


_STORY_MEMBERS = Members(dict.fromkeys(stories.ITEM.names + stories.DELETION.names))
_CHAPTER_MEMBERS = Members(dict.fromkeys(chapters.ITEM.names + chapters.DELETION.names))


def stories_kind() -> Kind:
    return Kind(
        job_type=payloads.STORIES,
        members=_STORY_MEMBERS,
        item=stories.ITEM,
        deletion=stories.DELETION,
        frame=stories.frame,
        deleted_frame=stories.deletion,
        external_ref=stories.external_ref,
    )


def chapters_kind(*, content_encoding: str) -> Kind:
    return Kind(
        job_type=payloads.CHAPTERS,
        members=_CHAPTER_MEMBERS,
        item=chapters.ITEM,
        deletion=chapters.DELETION,
        frame=lambda fields: chapters.frame(fields, encoding=content_encoding),
        deleted_frame=chapters.deletion,
        external_ref=chapters.external_ref,
    )


def check(envelope: Envelope, kind: Kind, *, now: datetime) -> Checked:
    """Check every item; never raises for what a client sent."""
    checked = Checked(envelope.source, len(envelope.items))
    unknown = {envelope.unknown_field}
    in_future = 0
    taken: dict[str, tuple[datetime, Item]] = {}
    for index, raw in enumerate(envelope.items):
        try:
            if (fields := kind.item.read_at_once(raw)) is not None:
                frame = _made(fields, kind.frame)
            else:
                members, unknown_field = _members(raw, kind)
                unknown.add(unknown_field)
                frame = _frame(members, kind)
        except Refused as refused:
            checked.errors.append(ItemError(index, refused.code, refused.message))
            continue
        in_future += frame.updated_at_source > now + FUTURE
        item = _item(index, frame, kind)
        earlier = taken.get(item.external_ref)
        if earlier is None:
            taken[item.external_ref] = frame.updated_at_source, item
            continue
        loser, winner = earlier[1], item
        if earlier[0] > frame.updated_at_source:
            loser, winner = item, earlier[1]
        else:
            taken[item.external_ref] = frame.updated_at_source, item
        why = "comes later" if earlier[0] == frame.updated_at_source else "has the later updated_at_source"
        checked.errors.append(
            ItemError(
                loser.index,
                "duplicate_item",
                f"Items {loser.index} and {winner.index} are the same: {winner.index} was taken, because it {why}.",
            )
        )
    checked.errors.sort(key=lambda error: error.index)
    checked.warnings = _warnings(unknown, in_future)
    items = sorted((item for _, item in taken.values()), key=lambda item: item.index)
    for blob in payloads.blobs(items):
        checked.blobs.append((blob, hashlib.sha256(blob.content).digest()))
    return checked


def _members(raw: Raw, kind: Kind) -> tuple[Any, str | None]:
    try:
        return kind.members.read(raw)
    except NotAnObject:
        raise Refused("invalid_type", "The item must be an object.") from None
    except RecursionError:  # how deep the envelope could go says little: the stack may be another
        raise Refused("invalid_type", "The item is nested too deeply.") from None
    except (UnicodeDecodeError, msgspec.DecodeError):
        raise Refused("invalid_text", "The item has a name that is not UTF-8.") from None


def _frame(members: Any, kind: Kind) -> AnyFrame:
    is_deletion = members.deleted is not UNSET and bytes(members.deleted) == b"true"
    reader, make = (kind.deletion, kind.deleted_frame) if is_deletion else (kind.item, kind.frame)
    return _made(reader.read(members), make)


def _made(fields: dict[str, Any], make: Callable[[dict[str, Any]], AnyFrame]) -> AnyFrame:
    for name in ("updated_at_source", "published_at"):
        if fields.get(name) is not None:
            fields[name] = _in_utc(name, fields[name])
    return make(fields)


def _in_utc(name: str, time: datetime) -> datetime:
    try:
        utc = time.astimezone(UTC)
    except OverflowError:
        raise Refused("invalid_datetime", f"{name} must be from 1970 to 9999.") from None
    if utc < OLDEST:
        raise Refused("invalid_datetime", f"{name} must be from 1970 to 9999.")
    return utc


def _item(index: int, frame: AnyFrame, kind: Kind) -> Item:
    encoded = payloads.encode(frame)
    return Item(index, kind.external_ref(frame), _fingerprint(frame, encoded), encoded)


def _fingerprint(frame: AnyFrame, encoded: bytes) -> bytes:
    """The same item has the same one, however its body is compressed."""
    if isinstance(frame, ChapterFrame) and frame.content is not None:
        bare = payloads.encode(msgspec.structs.replace(frame, content=None))
        return hashlib.sha256(bare + frame.content.sha256).digest()
    return hashlib.sha256(encoded).digest()


def _warnings(unknown: set[str | None], in_future: int) -> list[BatchWarning]:
    found = []
    if names := sorted(name for name in unknown if name is not None):
        shown = ", ".join(name[:MAX_NAME_CHARACTERS] for name in names[:MAX_NAMES_SHOWN])
        more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
        found.append(BatchWarning("unknown_field", f"Fields that are not known here were ignored: {shown}{more}."))
    if in_future:
        found.append(
            BatchWarning(
                "future_timestamp",
                f"{in_future} items have an updated_at_source more than a day ahead: until then every other update"
                " of them is stale.",
            )
        )
    return found
