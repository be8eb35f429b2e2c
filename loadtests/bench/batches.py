"""Batches of chapters as crawlers push them: Vietnamese prose in JSON, made once, the same in every run."""

import functools
import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import zstandard

from loadtests.catalogue import prose
from runtime.settings import IngestSettings

CHAPTERS = 300
SOURCE = "bench"
TIME = "2026-01-01T08:00:00Z"
# This share of the chapters is shorter than so many bytes; their mean is 12 KB.
QUANTILES = ((0.0, 2_350), (0.95, 24_000), (0.99, 96_000), (1.0, 128_000))
# The door's limit, decompressed.
LARGEST_BYTES = IngestSettings().max_chapters_bytes
# How near to the limit a large batch comes.
NEARNESS = 0.99

_STORY = "@story@"


@dataclass(frozen=True, slots=True)
class Form:
    """How a client writes and sends a batch."""

    name: str
    title: str
    encoding: str = "identity"
    is_escaped: bool = False
    """Whether every letter that is not ASCII is written as `\\uXXXX`."""


JSON = Form("json", "JSON in UTF-8")
ZSTD = Form("zstd", "JSON, zstd", "zstd")
GZIP = Form("gzip", "JSON, gzip", "gzip")
ESCAPED = Form("escaped", "JSON escaped to ASCII", is_escaped=True)
FORMS = (JSON, ZSTD, GZIP, ESCAPED)


@dataclass(frozen=True, slots=True)
class Batch:
    """A request's body, ready to be signed."""

    body: bytes
    """As it is sent."""
    sha256: str
    encoding: str
    items: int
    size: int
    """Bytes, decompressed."""


def chapter_sizes(count: int = CHAPTERS) -> list[int]:
    """Bytes of each chapter's text, spread as QUANTILES says."""
    sizes = [_size((place + 0.5) / count) for place in range(count)]
    Random(1).shuffle(sizes)
    return sizes


@functools.cache
def texts() -> tuple[str, ...]:
    """The texts of an ordinary batch."""
    random = Random(1)
    return tuple(_text(random, size) for size in chapter_sizes())


@functools.cache
def large_texts(form: Form) -> tuple[str, ...]:
    """The texts of a batch just below the door's limit when it is written in this form."""
    random = Random(2)
    wholes = [_text(random, LARGEST_BYTES // CHAPTERS) for _ in range(CHAPTERS)]
    share = LARGEST_BYTES * NEARNESS / len(_written(wholes, form))
    return tuple(whole[: int(len(whole) * share)] for whole in wholes)


def prepared(contents: Sequence[str], form: Form, *, count: int) -> list[Batch]:
    """Batches with the same texts, each of another story."""
    return list(_prepared(contents, form, range(count)))


def different(contents: Sequence[str], form: Form, *, first: int, count: int) -> list[Batch]:
    """Batches of stories first, first + 1 and so on. Each text begins with the name of its story: all are different."""
    return list(_prepared([f"{_STORY} {content}" for content in contents], form, range(first, first + count)))


def _prepared(contents: Sequence[str], form: Form, stories: Iterable[int]) -> Iterator[Batch]:
    written = _written(contents, form)
    for story in stories:
        payload = written.replace(_STORY.encode(), f"s{story:06}".encode())
        match form.encoding:
            case "zstd":
                body = zstandard.ZstdCompressor(level=3).compress(payload)
            case "gzip":
                body = gzip.compress(payload, 6, mtime=0)
            case _:
                body = payload
        yield Batch(body, hashlib.sha256(body).hexdigest(), form.encoding, len(contents), len(payload))


def _written(contents: Sequence[str], form: Form) -> bytes:
    items = [
        {
            "source_story_id": _STORY,
            "source_chapter_id": f"c{number}",
            "chapter_no": number,
            "slug": f"chuong-{number}",
            "title": f"Chương {number}: Gặp lại cố nhân",
            "content_raw": content,
            "published_at": TIME,
            "updated_at_source": TIME,
        }
        for number, content in enumerate(contents, 1)
    ]
    return json.dumps({"source": SOURCE, "items": items}, ensure_ascii=form.is_escaped).encode()


def _size(share: float) -> int:
    """The size below which this share of the chapters is: a straight line between the quantiles, on a log scale."""
    for (start, low), (end, high) in pairwise(QUANTILES):
        if share <= end:
            return round(low * math.exp(math.log(high / low) * (share - start) / (end - start)))
    raise ValueError(f"{share} is no share")


def _text(random: Random, size_bytes: int) -> str:
    """Prose of this size in UTF-8, less the letter that the end would cut in two."""
    paragraphs = prose.body(random, size_bytes=size_bytes * 4 // 3)  # which may be a fifth shorter than it is asked for
    return "\n\n".join(paragraphs).encode()[:size_bytes].decode(errors="ignore").rstrip()
