"""The slug of a genre, by which it is the same genre however it is written."""

import hashlib
import unicodedata

from store import folding

MAX_CHARACTERS = 120
_HASH_CHARACTERS = 12
_NOT_FOREIGN = ("LATIN", "COMBINING", "VARIATION SELECTOR")


def slug(name: str) -> str:
    """`Tiên Hiệp` and `tien-hiep` are one genre. Letters that are not Latin are spelt by their code points."""
    written = unicodedata.normalize("NFKC", name).casefold()
    spelt = "".join(f"-{ord(sign):x}-" if _is_foreign(sign) else sign for sign in written)
    found = folding.slug(spelt) or "-".join(f"{ord(sign):x}" for sign in written)
    if len(found) <= MAX_CHARACTERS:
        return found
    # Cut off, it could be another genre's too.
    tail = hashlib.sha256(found.encode()).hexdigest()[:_HASH_CHARACTERS]
    return f"{found[: MAX_CHARACTERS - _HASH_CHARACTERS - 1].rstrip('-')}-{tail}"


def _is_foreign(sign: str) -> bool:
    """Whether it is a letter or digit without which another genre would be meant, and which no slug can have."""
    if sign.isascii() or unicodedata.name(sign, "").startswith(_NOT_FOREIGN):
        return False
    return sign.isalnum() or unicodedata.category(sign) in ("Mc", "Mn")  # vowels of Indian scripts are marks
