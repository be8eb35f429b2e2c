"""The outer form of a batch: its source, and its items still as bytes, so that each can fail alone.

Nothing here grows with what a client sends: an array of millions of numbers costs no objects, deep nesting no stack.
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from ingest.errors import InvalidRequest, InvalidSchema
from ingest.items import MAX_ITEMS, SOURCE_PATTERN, Source
from ingest.members import Members, NotAnObject
from ingest.text import NotText, normalised

# One field for each item that may be there, and one more that tells that there are too many: what comes after it is
# skipped. A list would hold an object for every number of a body of millions.
_Items: Any = msgspec.defstruct(
    "_Items",
    [(f"item_{number}", Raw | UnsetType, UNSET) for number in range(MAX_ITEMS + 1)],
    array_like=True,
)

# A run of what is allowed within a string, or an escape that is half of a surrogate pair. In pieces, so that nothing
# holds the interpreter for long.
_SURROGATES = re.compile(
    rb"((?:[^\\]|\\[^u]|\\u(?![dD][89a-fA-F])|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}){1,4096})"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


_MEMBERS = Members(("source", "items"))
_ITEMS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Items)
_TEXT: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class Envelope:
    source: str
    items: tuple[Raw, ...]
    unknown_field: str | None = None


def read(body: bytes | bytearray) -> Envelope:
    """The envelope of a batch, or what is wrong with it."""
    members, unknown = members_of(body, _MEMBERS)
    for name in ("source", "items"):
        if getattr(members, name) is UNSET:
            raise InvalidSchema(f"{name} is missing.")
    return Envelope(_source(members.source), _items(members.items), unknown)


def members_of(body: bytes | bytearray, members: Members) -> tuple[Any, str | None]:
    """The members of the object that a body is, or what is wrong with the body."""
    try:
        return _read(body, members)
    except NotAnObject:
        raise InvalidSchema("The body must be a JSON object.") from None
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not UTF-8.") from None
    except RecursionError:
        raise InvalidRequest("The JSON of the body is nested too deeply.") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None


def _read(body: bytes | bytearray, members: Members) -> tuple[Any, str | None]:
    try:
        return members.read(body)
    except msgspec.DecodeError:
        whole = _without_half_pairs(body)
        if whole == body:
            raise
        return members.read(whole)


def _without_half_pairs(body: bytes | bytearray) -> bytes:
    """Half a surrogate pair makes no character. As NUL, which no text may have, it spoils its own item alone."""
    return _SURROGATES.sub(lambda match: match[1] or rb"\u0000", body)


def _source(raw: Raw) -> str:
    try:
        source = msgspec.convert(normalised(_TEXT.decode(raw)), Source)
    except (msgspec.DecodeError, UnicodeDecodeError, NotText):
        source = ""
    if not re.fullmatch(SOURCE_PATTERN.removesuffix("$"), source):
        raise InvalidSchema(
            "source must be a string of 1 to 40 characters, without a slash, control characters or outer spaces."
        )
    return source


def _items(raw: Raw) -> tuple[Raw, ...]:
    try:
        decoded = _ITEMS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidSchema("items must be an array.") from None
    items = tuple(item for item in structs.astuple(decoded) if item is not UNSET)
    if not items:
        raise InvalidSchema("items is empty: send 1 to 300 of them.")
    if len(items) > MAX_ITEMS:
        raise InvalidSchema(f"items has more than {MAX_ITEMS} entries: send them in several batches.")
    return items
