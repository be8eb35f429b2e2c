"""The members of a JSON object, still as bytes: those that we know, and the name of one that we do not.

What is not known is skipped without a trace, so that an object of a million names costs nothing.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class NotAnObject(ValueError):
    """It is another kind of value."""


class Members:
    """Reads objects that have some of these names; each is an attribute, UNSET where it is not there."""

    def __init__(self, names: Iterable[str]) -> None:
        fields = [(name, Raw | UnsetType, UNSET) for name in names]
        # Almost always every name is known, so the strict decoder is asked first.
        strict: Any = msgspec.defstruct("Members", fields, forbid_unknown_fields=True)
        lenient: Any = msgspec.defstruct("Members", fields)
        self._strict: msgspec.json.Decoder[Any] = msgspec.json.Decoder(strict)
        self._lenient: msgspec.json.Decoder[Any] = msgspec.json.Decoder(lenient)

    def read(self, raw: bytes | bytearray | Raw) -> tuple[Any, str | None]:
        """The members, and the first name that is not known. Raises what the decoder raises for broken JSON."""
        try:
            return self._strict.decode(raw), None
        except msgspec.ValidationError as error:
            unknown = _UNKNOWN.match(str(error))
            if unknown is None:
                raise NotAnObject from None
            return self._lenient.decode(raw), unknown[1]
