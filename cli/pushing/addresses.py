"""What web addresses and titles become: sources, identifiers and slugs. Pure."""

import hashlib
import re
import unicodedata
from urllib.parse import urlsplit

MAX_SLUG = 191
_HASH = 32


def domain(url: str) -> str:
    """The site that an address belongs to: www.example.org and example.org are one."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise ValueError(f"{url!r} is no web address")
    return host.removeprefix("www.")


def identifier(url: str, *, longest: int) -> str:
    """What names a page within its site: the address without the site."""
    parts = urlsplit(url)
    name = parts.path.strip("/")
    if parts.query:
        name += f"?{parts.query}"
    if parts.fragment:
        name += f"#{parts.fragment}"
    name = name or domain(url)
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{name[: longest - _HASH - 1]}~{digest}"


def slug(text: str) -> str:
    """Lower-case ASCII letters, digits and hyphens: Đấu Phá Thương Khung is dau-pha-thuong-khung."""
    return re.sub(r"[^a-z0-9]+", "-", _folded(text)).strip("-")[:MAX_SLUG].strip("-")


def keeps_letters(text: str) -> bool:
    """Whether a slug still says what the text says; one of Chinese does not."""
    return not any(letter.isalnum() and not letter.isascii() for letter in _folded(text))


def _folded(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.lower().replace("đ", "d"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
