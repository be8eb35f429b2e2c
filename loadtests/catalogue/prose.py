"""Realistic Vietnamese prose from a seeded random number generator: the same seed gives the same text."""

import gzip
import hashlib
import re
from dataclasses import dataclass
from random import Random

from loadtests.catalogue import words

BODY_BYTES = 12_000
SENTENCES_PER_PARAGRAPH = (1, 5)

_SLOT = re.compile(r"\{([A-Z])\}")
_POOLS = {
    "P": words.PEOPLE,
    "L": words.PLACES,
    "T": words.THINGS,
    "A": words.ACTIONS,
    "V": words.VERBS,
    "M": words.MANNERS,
    "S": words.SAYINGS,
    "K": words.TIMES,
}
# Each pattern as alternating text and slot letters, split once.
_PATTERNS = tuple(tuple(_SLOT.split(sentence)) for sentence in words.SENTENCES)


@dataclass(frozen=True, slots=True)
class Body:
    """A chapter's text as it is stored: compressed, with the hash of what was compressed."""

    raw: bytes
    html: bytes
    sha256: bytes
    size: int
    word_count: int


def person(random: Random) -> str:
    given = " ".join(random.sample(words.GIVEN, random.choice((1, 1, 2))))
    return f"{random.choice(words.FAMILIES)} {given}"


def author(random: Random) -> str:
    return random.choice(words.PEN_NAMES) if random.random() < 0.1 else person(random)


def title(random: Random) -> str:
    parts = [random.choice(words.TITLE_HEADS), random.choice(words.TITLE_TAILS)]
    luck = random.random()
    if luck < 0.25:
        parts.insert(1, random.choice(words.TITLE_HEADS))
    elif luck < 0.4:
        parts = [person(random), *parts]
    elif luck < 0.5:
        parts.append(random.choice(words.TITLE_ENDS))
    return " ".join(parts)


def chapter_title(random: Random) -> str:
    about = random.choice(words.PEOPLE + words.THINGS) if random.random() < 0.7 else person(random)
    return f"{random.choice(words.CHAPTER_HEADS)} {about}"


def summary(random: Random) -> str:
    cast = [person(random) for _ in range(3)]
    return " ".join(sentence(random, cast) for _ in range(random.randint(3, 8)))


def sentence(random: Random, cast: list[str]) -> str:
    pattern = random.choice(_PATTERNS)
    parts = [_fill(random, piece, cast) if index % 2 else piece for index, piece in enumerate(pattern)]
    text = "".join(parts)
    # A quotation mark keeps its place: the first letter is what begins the sentence.
    return text[0] + text[1].upper() + text[2:] if text[0] == "“" else text[0].upper() + text[1:]


def body(random: Random, *, size_bytes: int = BODY_BYTES) -> list[str]:
    """The paragraphs of a chapter, about `size_bytes` long in UTF-8."""
    cast = [person(random) for _ in range(random.randint(3, 7))]
    goal = size_bytes * random.uniform(0.8, 1.2)
    paragraphs: list[str] = []
    written = 0
    while written < goal:
        count = random.randint(*SENTENCES_PER_PARAGRAPH)
        paragraphs.append(" ".join(sentence(random, cast) for _ in range(count)))
        written += len(paragraphs[-1].encode()) + 2
    return paragraphs


def stored(paragraphs: list[str]) -> Body:
    """What the service stores of a chapter: gzip, which PHP's gzdecode reads."""
    text = "\n\n".join(paragraphs)
    raw = text.encode()
    html = "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs).encode()
    return Body(
        # No time stamp in the header: the same text gives the same bytes.
        raw=gzip.compress(raw, 6, mtime=0),
        html=gzip.compress(html, 6, mtime=0),
        sha256=hashlib.sha256(raw).digest(),
        size=len(raw),
        word_count=len(text.split()),
    )


def _fill(random: Random, slot: str, cast: list[str]) -> str:
    if slot == "N":
        return random.choice(cast)
    if slot == "W":
        return " ".join(random.choices(words.WORDS, k=random.randint(6, 12)))
    return random.choice(_POOLS[slot])
