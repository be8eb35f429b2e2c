"""Text as we keep it: in Unicode's NFC, whatever composed it."""

import re
import unicodedata
from itertools import takewhile

# Line breaks and tabs within a title are white space; what else is here is no text.
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_ANY_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")

# Marks on one letter. To put them in order takes the square of their number; no script needs a tenth of these.
MAX_MARKS = 99
# No marks by their class, but made of two of them.
_PAIRS_OF_MARKS = frozenset("\u0f73\u0f75\u0f81")
# Longer than any field may be, composed or not: it will be refused for that, and needs no form before.
MAX_CHARACTERS = 360_000


class NotText(ValueError):
    """Has something that text cannot have; says what."""


def normalised(text: str) -> str:
    if text.isascii() or len(text) > MAX_CHARACTERS or unicodedata.is_normalized("NFC", text):
        return text
    if _has_pile(text):
        raise NotText(f"more than {MAX_MARKS} combining marks on one letter")
    return unicodedata.normalize("NFC", text)


def line(text: str) -> str:
    """A title or name: one line, with single spaces."""
    if _CONTROLS.search(text):
        raise NotText("a control character, or half of a surrogate pair")
    return " ".join(normalised(text).split())


def identifier(text: str) -> str:
    """Taken as it is: the source knows what it means."""
    if _ANY_CONTROLS.search(text):
        raise NotText("a control character, or half of a surrogate pair")
    return normalised(text)


def prose(text: str) -> str:
    """Many lines, kept as they came."""
    if "\0" in text:
        raise NotText("a NUL character, or half of a surrogate pair")
    return normalised(text)


def _has_pile(text: str) -> bool:
    """Whether some letter has more marks than it may. So many cover at least one of the places looked at."""
    for place in range(0, len(text), MAX_MARKS + 1):
        if _is_mark(text[place]):
            before = takewhile(_is_mark, reversed(text[max(0, place - MAX_MARKS) : place]))
            after = takewhile(_is_mark, text[place : place + MAX_MARKS + 1])
            if sum(1 for _ in before) + sum(1 for _ in after) > MAX_MARKS:
                return True
    return False


def _is_mark(letter: str) -> bool:
    return unicodedata.combining(letter) > 0 or letter in _PAIRS_OF_MARKS
