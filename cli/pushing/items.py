"""Items to push: what each line is, where it goes, and the bytes it becomes in a batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from cli.pushing.lines import Input, Line

MAX_ITEMS = 300
_OF_CHAPTERS = ("chapter_no", "content_raw", "source_chapter_id")


@dataclass(frozen=True, slots=True)
class Route:
    """One of the two addresses that take batches."""

    name: str
    path: str
    max_body_bytes: int


STORIES = Route("stories", "/wp-json/novel/v1/ingest/stories/bulk", 5 << 20)
CHAPTERS = Route("chapters", "/wp-json/novel/v1/ingest/chapters/bulk", 12 << 20)


@dataclass(frozen=True, slots=True)
class Item:
    """One story or chapter, as it stands in the body of a batch."""

    route: Route
    source: str
    place: str
    encoded: bytes


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why something is not taken; `count` items share the reason."""

    place: str
    code: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that is left out on purpose."""

    place: str
    reason: str


def read(
    inputs: Iterable[Input], *, source: str | None, with_chapters: bool = True
) -> Iterator[Item | Rejection | Skip]:
    """All that the inputs hold, in their order; `source` is for lines that name none."""
    for one in inputs:
        for line in one.lines(with_chapters=with_chapters):
            yield from_line(line, source=source)


def of_route(inputs: Iterable[Input], route: Route, *, source: str | None) -> Iterator[Item]:
    """The good items of one kind; the others were spoken of before."""
    for found in read(inputs, source=source, with_chapters=route is CHAPTERS):
        if isinstance(found, Item) and found.route is route:
            yield found


def from_line(line: Line, *, source: str | None) -> Item | Rejection | Skip:
    if line.skipped:
        return Skip(line.place, line.skipped)
    if line.data is None:
        return Rejection(line.place, "invalid_line", line.problem)
    named = line.data.get("source")
    if named is None:
        named = source
    if not isinstance(named, str) or not named:
        return Rejection(line.place, "missing_field", 'the line has no "source", a string, and there is no --source.')
    route = CHAPTERS if any(name in line.data for name in _OF_CHAPTERS) else STORIES
    encoded = orjson.dumps({name: value for name, value in line.data.items() if name != "source"})
    if len(envelope(named, (encoded,))) > route.max_body_bytes:
        limit = f"{route.max_body_bytes >> 20} MiB"
        return Rejection(line.place, "payload_too_large", f"the item alone is larger than a batch may be ({limit}).")
    return Item(route, named, line.place, encoded)


def envelope(source: str, encoded: Iterable[bytes]) -> bytes:
    """The body of a batch."""
    return b'{"source":' + orjson.dumps(source) + b',"items":[' + b",".join(encoded) + b"]}"
