"""Text as search compares it: lower case, without accents, `đ` as `d`, whatever Unicode form it came in.

`search_text` is what the FULLTEXT index of stories has. InnoDB drops tokens of fewer than three letters and a list of
English stop words, of which `the` is a Vietnamese syllable (thế). So every token ends in an underscore, which is a
letter to FULLTEXT, and is filled up to three with more of them: neither rule ever meets one. Chinese and Japanese have
no spaces, so each of their characters is a token.
"""

import re
import unicodedata
from collections.abc import Iterator

MIN_TOKEN_LETTERS = 3
# InnoDB drops longer ones (innodb_ft_max_token_size is 84).
MAX_TOKEN_LETTERS = 80
# What the column holds.
MAX_SEARCH_BYTES = 65_535

_D_WITH_STROKE = str.maketrans({"đ": "d"})
# Han, Hiragana, Katakana.
_WITHOUT_SPACES = (
    r"\u3005-\u3007\u3041-\u3096\u30a1-\u30fa\u30fc\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003fffd"
)
_TOKEN = re.compile(rf"[{_WITHOUT_SPACES}]|[^\W_{_WITHOUT_SPACES}]+")
_NOT_IN_A_SLUG = re.compile(r"[^a-z0-9]+")


def fold(text: str) -> str:
    """Lower case without accents. Decomposition leaves đ untouched, so it is replaced."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", bare.casefold().translate(_D_WITH_STROKE))


def slug(text: str) -> str:
    """The Latin letters and digits of a text, joined by hyphens; empty if it has none."""
    return _NOT_IN_A_SLUG.sub("-", fold(text)).strip("-")


def tokens(text: str) -> Iterator[str]:
    """The words of a text as they stand in the index."""
    for word in _TOKEN.findall(fold(text)):
        yield f"{word[:MAX_TOKEN_LETTERS]}_".ljust(MIN_TOKEN_LETTERS, "_")


def search_text(*names: str | None) -> str:
    """The words of all these names, cut off where the column ends."""
    found = " ".join(token for name in names if name for token in tokens(name))
    raw = found.encode()
    if len(raw) <= MAX_SEARCH_BYTES:
        return found
    return raw[:MAX_SEARCH_BYTES].decode(errors="ignore").rpartition(" ")[0]
