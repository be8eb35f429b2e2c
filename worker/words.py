"""How many words a text has.

Words stand between white space: Vietnamese syllables, Korean and most others. What has no letter and no digit (`-`,
`***`, `—`) is none. Chinese and Japanese are written without spaces: each of their characters is a word of its own, and
ends the one before it.

Prose in Latin letters is counted on its UTF-8 bytes, without an object for each word or letter. That is right as long
as the lead byte of a character tells whether it is part of a word, so what else occurs sends the text the slower way.
But for a lone × or ÷, and lone signs of scripts from Georgian to Cherokee: to find them would take too
long, so they are words.
"""

import re

# Lead bytes of Latin and Vietnamese letters: U+00C0 to U+027F, U+1E00 to U+1EFF.
_OF_LETTERS = bytes((*range(0xC3, 0xCA), 0xE1))
# Lead bytes of signs like “quotes”, ornaments like ☆, 【brackets】, punctuation of full width.
_OF_SIGNS = b"\xc2\xe2\xe3\xef"
_OF_OTHERS = bytes(byte for byte in range(0xC0, 0x100) if byte not in _OF_LETTERS + _OF_SIGNS)
_ODD = b"?"

# What is no sign though it begins with such a byte.
_NOT_A_SIGN = {
    b"\xe2": re.compile(rb"\xe2(?!\x80[\x8b-\xa7]|[\x94-\x9b])"),
    b"\xe3": re.compile(rb"\xe3(?!\x80[\x81-\x83\x88-\xa0])"),
    b"\xef": re.compile(rb"\xef(?!\xbc[\x81-\x8f\x9a-\xa0\xbb-\xbf]|\xbd[\x80\x9b-\xa5])"),
}
_NOT_A_LATIN_SIGN = re.compile(rb"\xc2(?![\x80-\x84\x86-\x9f\xa1-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf])")


def _shape(byte: int) -> bytes:
    if byte < 0x80:
        return b" " if chr(byte).isspace() else b"a"
    return _ODD if byte in _OF_OTHERS else b"a"


# Every byte becomes white space, a letter, or something odd. Gone are signs, in ASCII and by their lead bytes, and the
# bytes that continue a character, whose lead byte speaks for it.
_SHAPES = b"".join(_shape(byte) for byte in range(256))
_SIGNS = bytes(
    byte
    for byte in range(256)
    if (byte < 0x80 and not chr(byte).isspace() and not chr(byte).isalnum())
    or 0x80 <= byte <= 0xBF
    or byte in _OF_SIGNS
)

# Han with its marks of repetition and its zero, Hiragana, Katakana (also of half width), but no punctuation.
_WITHOUT_SPACES = re.compile(
    "[\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001afff\U0001b000-\U0001b16f\U00020000-\U0003fffd]+"
)
# With what the fast way takes for letters.
_LETTER_OR_DIGIT = re.compile(r"[^\W_]|[×÷\u1000-\u1dff\u1f00-\u1fff]")


def count(raw: bytes) -> int:
    """The words of a text in UTF-8."""
    words = _in_latin(raw)
    if words is not None:
        return words
    text = raw.decode()
    rest, runs = _WITHOUT_SPACES.subn(" ", text)
    characters = len(text) - len(rest) + runs
    words = _in_latin(rest.encode())
    if words is None:
        words = sum(1 for token in rest.split() if token.isalnum() or _LETTER_OR_DIGIT.search(token))
    return characters + words


def _in_latin(raw: bytes) -> int | None:
    """The words of a text in Latin letters; None if there is more in it than bytes can tell."""
    shapes = raw.translate(_SHAPES, _SIGNS)
    if _ODD in shapes or any(lead in raw and odd.search(raw) for lead, odd in _NOT_A_SIGN.items()):
        return None
    if b"\xc2" in raw:
        if _NOT_A_LATIN_SIGN.search(raw.replace(b"\xc2\xa0", b" ")):
            return None
        if b"\xc2\xa0" in raw:
            shapes = raw.replace(b"\xc2\xa0", b" ").translate(_SHAPES, _SIGNS)
    return shapes.count(b" a") + shapes.startswith(b"a")
