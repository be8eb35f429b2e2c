"""The slug of a genre, by which it is the same genre however it is written."""

from store import folding

MAX_CHARACTERS = 120


def slug(name: str) -> str:
    """`Tiên Hiệp` and `tien-hiep` are one genre. What has no Latin letter is spelt by its code points."""
    found = folding.slug(name) or "-".join(f"{ord(letter):x}" for letter in name)
    return found[:MAX_CHARACTERS].rstrip("-")
