"""Checks one item of a batch, field by field, and says which field is wrong and how.

The types in `items` are the rules: each field has a decoder of its own type. A message names the field in words a
crawler's author understands, and a code that stays the same.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import gt
from typing import Any

import msgspec
import msgspec.inspect
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from ingest import text

_SPECIFIC = {
    "slug": "invalid_slug",
    "chapter_no": "invalid_chapter_no",
    "cover_url": "invalid_url",
    "language": "invalid_language",
}
_CLEANERS: dict[str, Callable[[str], str]] = {
    "source_story_id": text.identifier,
    "source_chapter_id": text.identifier,
    "slug": text.identifier,
    "cover_url": text.identifier,
    "language": text.identifier,
    "summary": text.prose,
    "content_raw": text.prose,
}
# An empty one has no form of its own, but is sent for none, like the other optional texts.
_MAY_BE_BLANK = frozenset({"cover_url", "language"})
_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "int | float": "a number",
    "bool": "true or false",
    "bool | int": "true, false, 1 or 0",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a string with a date and time",
}

_GOT = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<got>[^`]+)`(?: - at `\$\[(?P<place>\d+)\]`)?")
_LENGTH = re.compile(r"Expected `(?P<kind>\w+)` of length (?P<bound><=|>=) (?P<number>\d+)(?P<inner> - at)?")
_TEXTS: msgspec.json.Decoder[str | list[str]] = msgspec.json.Decoder(str | list[str])
_RANGE = re.compile(r"Expected `\w+` (?P<bound><=|>=) (?P<number>[\d.]+)")


class Refused(Exception):
    """Why an item is not taken."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    required: bool
    decoder: msgspec.json.Decoder[Any]
    clean: Callable[[str], str]
    max_entries: int = 0
    """Of a list, else 0."""
    counter: msgspec.json.Decoder[Any] | None = None
    """Tells, without an object for each entry, whether a list has more than it may."""


class Reader:
    """Reads items of one type from their members."""

    def __init__(self, item_type: type[Struct]) -> None:
        self.fields = tuple(
            _Field(
                name=field.name,
                required=field.required,
                decoder=msgspec.json.Decoder(field.type),
                clean=_CLEANERS.get(field.name, text.line),
                **_counted(field.type),
            )
            for field in structs.fields(item_type)
        )
        self.names = tuple(field.name for field in self.fields)
        # Lists are counted, and some blanks are forgiven, field by field.
        self._is_plain = not any(field.counter or field.name in _MAY_BE_BLANK for field in self.fields)
        members: Any = [(field.encode_name, field.type, field.default) for field in _required_first(item_type)]
        whole: Any = msgspec.defstruct("_Whole", members, forbid_unknown_fields=True)
        self._whole: msgspec.json.Decoder[Any] = msgspec.json.Decoder(whole)

    def read_at_once(self, raw: Raw) -> dict[str, Any] | None:
        """What `read` finds, in a fraction of the time; None where anything is wrong or unusual, for `read` to look."""
        if not self._is_plain:
            return None
        try:
            item = self._whole.decode(raw)
            values: dict[str, Any] = {}
            for field in self.fields:
                value = getattr(item, field.name)
                if value.__class__ is str:
                    clean = field.clean(value)
                    if not clean or len(clean) > len(value):
                        return None
                    values[field.name] = clean
                elif value is not UNSET:
                    values[field.name] = value
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, text.NotText):
            return None
        return values

    def read(self, members: Any) -> dict[str, Any]:
        """The values of the fields that are there, checked and cleaned; `members` has them as bytes."""
        values: dict[str, Any] = {}
        for field in self.fields:
            raw = getattr(members, field.name)
            if raw is UNSET:
                if field.required:
                    raise _missing(field.name)
                continue
            if field.name in _MAY_BE_BLANK and bytes(raw) == b'""':
                values[field.name] = None
                continue
            try:
                if field.counter is not None:
                    _count(field, raw)
                value = _cleaned(field, field.decoder.decode(raw))
            except (msgspec.DecodeError, UnicodeDecodeError, text.NotText) as error:
                value = _once_more(field, raw, error)
            if value == "" or (value.__class__ is list and "" in value):
                value = _blank(field, value)
            values[field.name] = value
        return values


def _required_first(item_type: type[Struct]) -> list[structs.FieldInfo]:
    return sorted(structs.fields(item_type), key=lambda field: not field.required)


def _counted(field_type: Any) -> dict[str, Any]:
    for found in msgspec.inspect.multi_type_info([field_type]):
        for kind in getattr(found, "types", (found,)):
            if isinstance(kind, msgspec.inspect.ListType) and kind.max_length:
                names = [f"entry_{number}" for number in range(kind.max_length + 1)]
                counted: Any = msgspec.defstruct(
                    "_Entries", [(name, Raw | UnsetType, UNSET) for name in names], array_like=True
                )
                return {"max_entries": kind.max_length, "counter": msgspec.json.Decoder(counted | None)}
    return {}


def _count(field: _Field, raw: Raw) -> None:
    assert field.counter is not None
    try:
        entries = field.counter.decode(raw)
    except msgspec.ValidationError:
        return  # no list: the field's own decoder says what it is
    if entries is not None and getattr(entries, f"entry_{field.max_entries}") is not UNSET:
        raise Refused("too_many", f"{field.name} has more than {field.max_entries} entries.")


def decimals(value: float, *, most: int = 2) -> str:
    """A number in digits, or Refused when it has more than that many decimals."""
    shown = f"{value + 0:.{most}f}"  # -0.0 is 0
    if float(shown) != value:
        raise Refused("invalid_chapter_no", f"chapter_no has more than {most} decimals.")
    return shown


def _cleaned(field: _Field, value: Any) -> Any:
    if value.__class__ is str:
        clean: Any = field.clean(value)
        grown = len(clean) > len(value)
    elif value.__class__ is list:
        clean = list(map(field.clean, value))
        grown = any(map(gt, map(len, clean), map(len, value)))
    else:
        return value
    # A few letters are two in NFC. A bound counts what we keep.
    return field.decoder.decode(msgspec.json.encode(clean)) if grown else clean


def _once_more(field: _Field, raw: Raw, error: Exception) -> Any:
    """Decomposed text is longer than what we keep: a bound counts after normalising."""
    if isinstance(error, msgspec.ValidationError) and "length <=" in str(error):
        composed = _composed(raw)
        if composed is not None:
            try:
                return _cleaned(field, field.decoder.decode(msgspec.json.encode(composed)))
            except (msgspec.DecodeError, text.NotText) as again:
                raise _refusal(field.name, again) from None
    raise _refusal(field.name, error) from None


def _composed(raw: Raw) -> str | list[str] | None:
    """Text or texts in NFC; None where that changes nothing, or there is more wrong with them."""
    try:
        given = _TEXTS.decode(raw)
        composed = text.normalised(given) if isinstance(given, str) else list(map(text.normalised, given))
    except (msgspec.DecodeError, UnicodeDecodeError, text.NotText):
        return None
    return None if composed == given else composed


def _blank(field: _Field, value: Any) -> Any:
    """White space alone is nothing: an optional field is then not given, others are empty."""
    if value == "" and not field.required:
        return None
    raise Refused("empty", f"{field.name} has an empty entry." if value else f"{field.name} is empty.")


def _missing(name: str) -> Refused:
    return Refused("invalid_slug" if name == "slug" else "missing_field", f"{name} is required.")


def _refusal(name: str, error: Exception) -> Refused:
    said = str(error)
    if isinstance(error, text.NotText):
        return Refused(_SPECIFIC.get(name, "invalid_text"), f"{name} has {said}.")
    if not isinstance(error, msgspec.ValidationError):
        return Refused(_SPECIFIC.get(name, "invalid_text"), f"{name} is not UTF-8.")
    if "out of range" in said:
        code = "invalid_chapter_no" if name == "chapter_no" else "out_of_range"
        return Refused(code, f"{name} has a number that is too large.")
    if "RFC3339" in said or "timezone" in said:
        return Refused("invalid_datetime", f"{name} must be a date and time with a zone, like 2026-02-21T08:00:00Z.")
    if got := _GOT.match(said):
        where = f"{name}[{got['place']}]" if got["place"] else name
        expected, given = _kind(got["expected"]), _kind(got["got"])
        return Refused("invalid_type", f"{where} must be {expected}, not {given}.")
    if length := _LENGTH.match(said):
        return _length(name, length)
    if name == "slug":
        return Refused("invalid_slug", "slug may only have the letters a to z, digits and hyphens.")
    if name == "cover_url":
        return Refused("invalid_url", "cover_url must begin with http:// or https:// and have no spaces.")
    if name == "language":
        return Refused("invalid_language", "language must be a code like vi or zh-Hant, in lower case at first.")
    if bound := _RANGE.match(said):
        side = "at most" if bound["bound"] == "<=" else "at least"
        return Refused(_SPECIFIC.get(name, "out_of_range"), f"{name} must be {side} {bound['number']}.")
    return Refused(_SPECIFIC.get(name, "out_of_range"), f"{name} is not one of the values that are allowed.")


def _length(name: str, length: re.Match[str]) -> Refused:
    each = "an entry of " if length["inner"] else ""
    if length["bound"] == ">=":
        return Refused("invalid_slug" if name == "slug" else "empty", f"{each}{name} is empty.")
    if length["kind"] == "array":
        return Refused("too_many", f"{name} has more than {length['number']} entries.")
    return Refused("too_long", f"{each}{name} is longer than {length['number']} characters.")


def _kind(name: str) -> str:
    return _KINDS.get(name.removesuffix(" | null"), name)
