"""Compares stories, chapters and all that belongs to them with what the model says.

Within a story no two items have the same time, so the time of a row says which chapter it has to be: one that is
missing, or there twice, is seen by it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from loadtests.chaos import model
from loadtests.chaos.model import Catalogue, Chapter, Ref, Story
from schema.connection import Connection
from store import bodies

MAX_VERSIONS = 5

_Key = tuple[int, int | None]
"""A story, or a chapter of it."""

_STORIES = """
    SELECT id, source, source_story_id, updated_at_source, source_microsecond, deleted_at IS NOT NULL, slug, title,
        title_original, author_name, status, cover_url, summary, language, chapter_count, word_count, last_chapter_no,
        published_at IS NOT NULL
    FROM wp_novel_stories
"""
_ALIASES = "SELECT story_id, alias FROM wp_novel_story_aliases"
_GENRES = "SELECT s.story_id, g.slug FROM wp_novel_story_genres s JOIN wp_novel_genres g ON g.id = s.genre_id"
_CHAPTERS = """
    SELECT c.story_id, c.id, c.updated_at_source, c.source_microsecond, c.deleted_at IS NOT NULL, c.source_chapter_id,
        c.chapter_no, c.slug, c.title, c.is_published, c.published_at, c.word_count, t.content_raw, t.content_html,
        t.content_hash, t.content_size, t.content_encoding
    FROM wp_novel_chapters c LEFT JOIN wp_novel_chapter_content t ON t.chapter_id = c.id
"""
_ORPHANS = """
    SELECT (SELECT COUNT(*) FROM wp_novel_chapter_content t LEFT JOIN wp_novel_chapters c ON c.id = t.chapter_id
            WHERE c.id IS NULL),
        (SELECT COUNT(*) FROM wp_novel_chapter_versions v LEFT JOIN wp_novel_chapters c ON c.id = v.chapter_id
            WHERE c.id IS NULL),
        (SELECT COUNT(*) FROM wp_novel_chapters c LEFT JOIN wp_novel_stories s ON s.id = c.story_id WHERE s.id IS NULL)
"""
_VERSIONS = """
    SELECT chapter_id, version, content_raw, content_hash, content_size, content_encoding
    FROM wp_novel_chapter_versions ORDER BY chapter_id, version
"""
_EVENTS = "SELECT story_id, chapter_id, event_type FROM wp_novel_events ORDER BY id"

_REVISION = re.compile(rb"B\xe1\xba\xa3n (\d+)\n")


def differences(conn: Connection, expected: Catalogue) -> Iterator[str]:
    """What is wrong, a sentence each."""
    row = conn.fetch_one(_ORPHANS)
    assert row is not None
    for count, what in zip(row, ("bodies", "versions", "chapters"), strict=True):
        if count:
            yield f"{count} {what} belong to nothing"
    rows: dict[Ref, tuple[Any, ...]] = {}
    for found in conn.fetch_all(_STORIES):
        rows[found[1], found[2]] = found
    if extra := rows.keys() - expected.stories.keys():
        yield f"{len(extra)} stories that nobody pushed: {sorted(extra)[:3]}"
    if missing := expected.stories.keys() - rows.keys():
        yield f"{len(missing)} stories are missing: {sorted(missing)[:3]}"
    labels = _labels(conn, _ALIASES), _labels(conn, _GENRES)
    chapters: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for story_id, *chapter in conn.fetch_all(_CHAPTERS):
        chapters[story_id].append(tuple(chapter))
    visible: set[_Key] = set()
    bodies_now: dict[int, int] = {}
    for ref in sorted(rows.keys() & expected.stories.keys()):
        story = expected.stories[ref]
        yield from _story(ref, rows[ref], story, *(of.get(rows[ref][0], frozenset()) for of in labels))
        yield from _counts(ref, rows[ref], expected.visible(ref))
        if not story.is_deleted and story.status:
            visible.add((rows[ref][0], None))
        yield from _chapters(ref, rows[ref][0], chapters[rows[ref][0]], expected.chapters.get(ref, []), visible)
        bodies_now |= {row[0]: _revision(_text(row[11], row[15])) for row in chapters[rows[ref][0]] if row[11]}
    yield from _versions(conn, bodies_now)
    whole = {rows[ref][0] for ref in expected.always_visible & rows.keys()}
    yield from _events(conn, visible, whole)


def _labels(conn: Connection, sql: str) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for story_id, label in conn.fetch_all(sql):
        found[story_id].add(label)
    return {story_id: frozenset(some) for story_id, some in found.items()}


def _story(
    ref: Ref, row: tuple[Any, ...], story: Story, aliases: frozenset[str], genres: frozenset[str]
) -> Iterator[str]:
    at, is_deleted = _at(row[3], row[4]), bool(row[5])
    if (at, is_deleted) != (story.at, story.is_deleted):
        yield f"story {ref}: time and deletion are {(at, is_deleted)}, not {(story.at, story.is_deleted)}"
    if story.is_deleted:
        return  # nobody says what a deleted one has to look like
    found = (*row[6:14], aliases, genres, bool(row[17]))
    wanted = (
        *(story.slug, story.title, story.title_original, story.author_name, story.status, story.cover_url),
        *(story.summary, story.language, story.aliases, story.genres, True),
    )
    if found != wanted:
        yield f"story {ref}: it is {_apart(found, wanted)}"


def _counts(ref: Ref, row: tuple[Any, ...], visible: Sequence[Chapter]) -> Iterator[str]:
    wanted = (
        len(visible),
        sum(model.words(chapter.text or "") for chapter in visible),
        max((chapter.number for chapter in visible if chapter.number is not None), default=None),
    )
    if row[14:17] != wanted:
        yield f"story {ref}: chapters, words and last number are counted as {row[14:17]}, not {wanted}"


def _chapters(
    ref: Ref,
    story_id: int,
    rows: Sequence[tuple[Any, ...]],
    expected: Sequence[Chapter],
    visible: set[_Key],
) -> Iterator[str]:
    found = {_at(row[1], row[2]): row for row in rows}
    wanted = {chapter.at: chapter for chapter in expected}
    if len(rows) != len(expected) or found.keys() != wanted.keys():
        missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        yield (
            f"story {ref}: {len(rows)} chapters, not {len(expected)};"
            f" missing those of {list(map(str, missing))}, too many of {list(map(str, extra))}"
        )
    for at in sorted(found.keys() & wanted.keys()):
        row, chapter = found[at], wanted[at]
        name = f"chapter {chapter.ref or chapter.number} of {ref}"
        if bool(row[3]) != chapter.is_deleted:
            yield f"{name}: deleted is {bool(row[3])}, not {chapter.is_deleted}"
        elif not chapter.is_deleted:
            yield from _chapter(name, row, chapter)
        if chapter.is_visible:
            visible.add((story_id, row[0]))


def _chapter(name: str, row: tuple[Any, ...], chapter: Chapter) -> Iterator[str]:
    assert chapter.text is not None
    published_at = row[9] if chapter.published_at is None else chapter.published_at
    raw, html = _text(row[11], row[15]), _text(row[12], row[15])
    found = (*row[4:8], bool(row[8]), row[9], row[10], raw, html, row[13], row[14])
    wanted = (
        *(chapter.ref, chapter.number, chapter.slug, chapter.title, chapter.is_published, published_at),
        *(model.words(chapter.text), chapter.text.encode(), model.html(chapter.text).encode()),
        *(model.sha256(chapter.text), len(chapter.text.encode())),
    )
    if found != wanted:
        yield f"{name}: it is {_apart(found, wanted)}"
    if row[9] is None:
        yield f"{name}: it has no time of publication"


def _versions(conn: Connection, bodies_now: Mapping[int, int]) -> Iterator[str]:
    """Of each chapter the last few bodies before the present one: whole, without gaps, and one newer than the other."""
    versions: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for chapter_id, *version in conn.fetch_all(_VERSIONS):
        versions[chapter_id].append(tuple(version))
    for chapter_id, some in versions.items():
        numbers = [version[0] for version in some]
        if len(some) > MAX_VERSIONS or numbers != list(range(numbers[0], numbers[0] + len(some))):
            yield f"chapter {chapter_id}: its versions are {numbers}"
        revisions = []
        for number, stored, sha256, size, encoding in some:
            raw = _text(stored, encoding)
            if model.sha256(raw.decode()) != sha256 or len(raw) != size:
                yield f"chapter {chapter_id}: hash or size of version {number} is wrong"
            revisions.append(_revision(raw))
        revisions.append(bodies_now.get(chapter_id, -1))
        if sorted(set(revisions)) != revisions:
            yield f"chapter {chapter_id}: its bodies came in the order {revisions}"


def _events(conn: Connection, visible: set[_Key], whole: set[int]) -> Iterator[str]:
    """Of each story and chapter: created, then updated any number of times, then deleted, and so on, until now.

    What happens to chapters while readers do not see their story is no event: so theirs are complete only for the
    stories in `whole`.
    """
    is_there: set[_Key] = set()
    for story_id, chapter_id, event in conn.fetch_all(_EVENTS):
        key = story_id, chapter_id
        if chapter_id is not None and story_id not in whole:
            continue
        kind = event.partition(".")[2]
        if (key in is_there) == (kind == "created"):
            yield f"event {event} of {key} comes when it {'is there already' if key in is_there else 'is not there'}"
        (is_there.discard if kind == "deleted" else is_there.add)(key)
    wanted = {key for key in visible if key[1] is None or key[0] in whole}
    if is_there != wanted:
        yield f"events say that {len(is_there - wanted)} are there that are not, and miss {len(wanted - is_there)}"


def _apart(found: Sequence[object], wanted: Sequence[object]) -> str:
    """What is not as it should be, and what it should be."""
    return "; ".join(
        f"{_short(one)}, not {_short(other)}" for one, other in zip(found, wanted, strict=True) if one != other
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:120]}..."


def _text(stored: bytes | None, encoding: str) -> bytes:
    return b"" if stored is None else bodies.decompress(stored, encoding)


def _revision(raw: bytes) -> int:
    match = _REVISION.match(raw)
    return int(match[1]) if match else -1


def _at(whole: datetime | None, microsecond: int) -> datetime:
    return datetime.min if whole is None else whole.replace(microsecond=microsecond)
