"""Folding Vietnamese to plain letters: for slugs, and for the words that search finds."""

import re
import unicodedata

MIN_TOKEN_LETTERS = 3

_NOT_A_LETTER = re.compile(r"[^a-z0-9]+")


def fold(text: str) -> str:
    """Lower case without accents. NFD leaves đ untouched, so it is replaced first."""
    plain = text.lower().replace("đ", "d")
    return "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))


def slug(text: str) -> str:
    return _NOT_A_LETTER.sub("-", fold(text)).strip("-")


def search_text(*names: str | None) -> str:
    """Folded tokens, each padded to the three letters below which FULLTEXT drops it."""
    tokens = (token for name in names if name for token in _NOT_A_LETTER.split(fold(name)) if token)
    return " ".join(token.ljust(MIN_TOKEN_LETTERS, "_") for token in tokens)
