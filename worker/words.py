"""How many words a text has.

Words stand between white space: Vietnamese syllables, Korean and most others. What has no letter and no digit (`-`,
`***`, `—`) is none. Chinese and Japanese are written without spaces: each of their characters is a word of its own, and
ends the one before it.

Vietnamese prose is counted on its UTF-8 bytes, without an object for each word. That is right as long as the lead byte
of a character tells whether it is part of a word, so whatever else occurs sends the text the slower way.
"""

import re

# High bytes of UTF-16, each for 256 characters: Latin and Vietnamese letters; “quotes”, ornaments like ☆, 【brackets】,
# punctuation of full width. What is no sign among the latter, the patterns below find.
_LATIN_PAGES = b"\x00\x01\x1e"
_SIGN_PAGES = b"\x20\x25\x26\x30\xff"

# What may be white space or a word, among the characters that begin with a byte which else begins a sign.
_NOT_A_SIGN = (
    re.compile(rb"\xe2(?!\x80[\x8b-\xa7]|[\x94-\x9b])"),
    re.compile(rb"\xe3(?!\x80[\x81-\x83\x88-\xa0])"),
    re.compile(rb"\xef(?!\xbc[\x81-\x8f\x9a-\xa0\xbb-\xbf]|\xbd[\x80\x9b-\xa5])"),
)
_NOT_A_LATIN_SIGN = re.compile(rb"\xc2(?![\x80-\x84\x86-\x9f\xa1-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf])")

# Every byte becomes white space or a letter. Gone are signs: in ASCII, and by the lead bytes 0xC2, 0xE2, 0xE3, 0xEF;
# and so are the bytes that continue a character, whose lead byte speaks for it.
_SHAPES = bytes(0x20 if chr(byte).isspace() else 0x61 for byte in range(128)) + b"a" * 128
_SIGNS = bytes(
    byte
    for byte in range(256)
    if (byte < 0x80 and not chr(byte).isspace() and not chr(byte).isalnum())
    or 0x80 <= byte <= 0xBF
    or byte in b"\xc2\xe2\xe3\xef"
)

# Han with its marks of repetition and its zero, Hiragana, Katakana (also of half width), but no punctuation.
_WITHOUT_SPACES = re.compile(
    "[\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001afff\U0001b000-\U0001b16f\U00020000-\U0003fffd]+"
)
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


def count(text: str) -> int:
    words = _in_latin(text)
    if words is not None:
        return words
    rest, runs = _WITHOUT_SPACES.subn(" ", text)
    characters = len(text) - len(rest) + runs
    words = _in_latin(rest)
    if words is None:
        words = sum(1 for token in rest.split() if token.isalnum() or _LETTER_OR_DIGIT.search(token))
    return characters + words


def _in_latin(text: str) -> int | None:
    """The words of a text in Latin letters; None if there is more in it than bytes can tell."""
    raw = text.encode()
    if len(raw) != len(text):
        pages = text.encode("utf-16-le")[1::2].translate(None, _LATIN_PAGES)
        if pages and (pages.strip(_SIGN_PAGES) or any(odd.search(raw) for odd in _NOT_A_SIGN)):
            return None
        if b"\xc2" in raw:
            raw = raw.replace(b"\xc2\xa0", b" ")
            if _NOT_A_LATIN_SIGN.search(raw):
                return None
        if "×" in text or "÷" in text:
            return None
    shapes = raw.translate(_SHAPES, _SIGNS)
    return shapes.count(b" a") + shapes.startswith(b"a")
