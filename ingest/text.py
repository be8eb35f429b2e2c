"""Text as we keep it: in Unicode's NFC, whatever composed it."""

import re
import unicodedata

# Line breaks and tabs within a title are white space; what else is here is no text.
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_ANY_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class NotText(ValueError):
    """Has a character that text cannot have."""


def normalised(text: str) -> str:
    return text if text.isascii() or unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def line(text: str) -> str:
    """A title or name: one line, with single spaces."""
    if _CONTROLS.search(text):
        raise NotText("a control character")
    return " ".join(normalised(text).split())


def identifier(text: str) -> str:
    """Taken as it is: the source knows what it means."""
    if _ANY_CONTROLS.search(text):
        raise NotText("a control character")
    return normalised(text)


def prose(text: str) -> str:
    """Many lines, kept as they came."""
    if "\0" in text:
        raise NotText("a NUL character")
    return normalised(text)
