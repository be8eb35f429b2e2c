"""A batch, checked: what can be queued, what was refused and why. Pure, and made to run in a thread.

All that can be done once is done here: `examine` decodes, checks, normalises and hashes, `pack` compresses. In between
somebody may look which items are stored already just as they were pushed: those are not packed. Of two items with the
same identity the one with the later `updated_at_source` is taken (the later in the batch, if they are equal).
"""

import hashlib
from collections.abc import Callable, Container
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
    pack: Callable[[AnyFrame], AnyFrame]
    """Brings a frame into the form in which it is stored."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that is well-formed, and the only one of its batch with its identity."""

    index: int
    external_ref: str
    frame: AnyFrame
    """With its text as it came."""
    fingerprint: bytes


@dataclass(slots=True)
class Examined:
    """What can be taken, and what was refused and why."""

    source: str
    total: int
    candidates: list[Candidate] = field(default_factory=list)
    errors: list[ItemError] = field(default_factory=list)
    warnings: list[BatchWarning] = field(default_factory=list)


@dataclass(slots=True)
class Checked:
    source: str
    total: int
    errors: list[ItemError]
    warnings: list[BatchWarning]
    standing: list[Candidate]
    """Items that are stored as they were pushed already: nothing is left to do."""
    blobs: list[tuple[Blob, bytes]]
    """The others, with the SHA-256 of each blob."""

    @property
    def accepted(self) -> int:
        return len(self.standing) + sum(len(blob.items) for blob, _ in self.blobs)


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
        pack=lambda frame: frame,
    )


def chapters_kind(*, content_encoding: str) -> Kind:
    return Kind(
        job_type=payloads.CHAPTERS,
        members=_CHAPTER_MEMBERS,
        item=chapters.ITEM,
        deletion=chapters.DELETION,
        frame=chapters.frame,
        deleted_frame=chapters.deletion,
        external_ref=chapters.external_ref,
        pack=lambda frame: chapters.packed(frame, encoding=content_encoding),
    )


def examine(envelope: Envelope, kind: Kind, *, now: datetime) -> Examined:
    """Check every item; never raises for what a client sent."""
    examined = Examined(envelope.source, len(envelope.items))
    unknown = {envelope.unknown_field}
    in_future = 0
    taken: dict[str, Candidate] = {}
    for index, raw in enumerate(envelope.items):
        try:
            if (fields := kind.item.read_at_once(raw)) is not None:
                frame = _made(fields, kind.frame)
            else:
                members, unknown_field = _members(raw, kind)
                unknown.add(unknown_field)
                frame = _frame(members, kind)
        except Refused as refused:
            examined.errors.append(ItemError(index, refused.code, refused.message))
            continue
        in_future += frame.updated_at_source > now + FUTURE
        candidate = Candidate(index, kind.external_ref(frame), frame, _fingerprint(frame))
        earlier = taken.get(candidate.external_ref)
        if earlier is None:
            taken[candidate.external_ref] = candidate
            continue
        loser, winner = earlier, candidate
        earlier_at = earlier.frame.updated_at_source
        if earlier_at > frame.updated_at_source:
            loser, winner = candidate, earlier
        taken[candidate.external_ref] = winner
        why = "comes later" if earlier_at == frame.updated_at_source else "has the later updated_at_source"
        examined.errors.append(
            ItemError(
                loser.index,
                "duplicate_item",
                f"Items {loser.index} and {winner.index} are the same: {winner.index} was taken, because it {why}.",
            )
        )
    examined.errors.sort(key=lambda error: error.index)
    examined.warnings = _warnings(unknown, in_future)
    examined.candidates = sorted(taken.values(), key=lambda candidate: candidate.index)
    return examined


def pack(examined: Examined, kind: Kind, *, standing: Container[int] = ()) -> Checked:
    """Compress and encode the items, but for those (by their index) that are stored as they are already."""
    items, done = [], []
    for candidate in examined.candidates:
        if candidate.index in standing:
            done.append(candidate)
            continue
        encoded = payloads.encode(kind.pack(candidate.frame))
        items.append(Item(candidate.index, candidate.external_ref, candidate.fingerprint, encoded))
    blobs = [(blob, hashlib.sha256(blob.content).digest()) for blob in payloads.blobs(items)]
    return Checked(examined.source, examined.total, examined.errors, examined.warnings, done, blobs)


def check(envelope: Envelope, kind: Kind, *, now: datetime) -> Checked:
    """All of it at once, for whoever does not know what is stored."""
    return pack(examine(envelope, kind, now=now), kind)


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


def _fingerprint(frame: AnyFrame) -> bytes:
    """The same item has the same one, however its body is compressed."""
    if isinstance(frame, ChapterFrame) and frame.content is not None:
        bare = payloads.encode(msgspec.structs.replace(frame, content=None))
        return hashlib.sha256(bare + frame.content.sha256).digest()
    return hashlib.sha256(payloads.encode(frame)).digest()


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
