"""What must be in the tables after everything that was pushed: the rules of the service, as simply as they can be said.

Pure and single-threaded. It takes the accepted items in the order in which their source made them, which is that of
`updated_at_source`, one after the other. The service gets them in any order, in sets, several at a time, and some of
them twice. It has to end with the same.
"""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

STORIES, CHAPTERS = "stories", "chapters"
DRAFT, ONGOING = 0, 1
DEFAULT_LANGUAGE = "vi"
SLUG_CONFLICT = "slug_conflict"

_OPTIONAL = ("title_original", "author_name", "status", "cover_url", "summary", "language")
_NULLABLE = frozenset({"title_original", "author_name", "cover_url", "summary"})

Ref = tuple[str, str]
"""A story: its source, and the id it has there."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item as it was pushed."""

    source: str
    kind: str
    fields: Mapping[str, Any]

    @property
    def at(self) -> datetime:
        return moment(self.fields["updated_at_source"])

    @property
    def story(self) -> Ref:
        return self.source, self.fields["source_story_id"]


@dataclass(slots=True)
class Story:
    at: datetime
    slug: str = ""
    title: str = ""
    title_original: str | None = None
    author_name: str | None = None
    status: int = ONGOING
    cover_url: str | None = None
    summary: str | None = None
    language: str = DEFAULT_LANGUAGE
    aliases: frozenset[str] = frozenset()
    genres: frozenset[str] = frozenset()
    """Their slugs."""
    is_deleted: bool = False


@dataclass(slots=True)
class Chapter:
    at: datetime
    ref: str | None
    number: Decimal | None
    """None: it was deleted before anybody said its number."""
    slug: str = ""
    title: str = ""
    text: str | None = None
    is_published: bool = True
    published_at: datetime | None = None
    """None: the time at which it came in."""
    is_deleted: bool = False

    @property
    def is_visible(self) -> bool:
        return self.is_published and not self.is_deleted


@dataclass(slots=True)
class Catalogue:
    stories: dict[Ref, Story] = field(default_factory=dict)
    chapters: dict[Ref, list[Chapter]] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    """Places of the items that no repetition can mend."""
    newest: set[int] = field(default_factory=set)
    """Places of those that nothing newer has overtaken: whenever they come, they are not stale."""
    always_visible: set[Ref] = field(default_factory=set)
    """Stories that readers see from the beginning, in whatever order their items come."""

    def visible(self, story: Ref) -> list[Chapter]:
        return [chapter for chapter in self.chapters.get(story, ()) if chapter.is_visible]


def replay(items: Sequence[Item]) -> Catalogue:
    """What these items make, and which of them fail."""
    made = Catalogue()
    owners: dict[tuple[str, str], Ref] = {}
    times = [item.at for item in items]
    changed: list[tuple[int, Story | Chapter]] = []
    for place in sorted(range(len(items)), key=times.__getitem__):
        item = items[place]
        if item.kind == CHAPTERS:
            changed.append((place, _apply_chapter(made.chapters.setdefault(item.story, []), item)))
        elif story := _apply_story(made.stories, owners, item):
            changed.append((place, story))
        else:
            made.refused.add(place)
    made.newest = {place for place, row in changed if row.at == times[place]}
    hidden = {
        item.story
        for item in items
        if item.kind == STORIES and (item.fields.get("deleted") or item.fields.get("status") == DRAFT)
    }
    made.always_visible = made.stories.keys() - hidden
    return made


def moment(text: str) -> datetime:
    """In UTC, without a zone, as tables have it."""
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)


def number(value: float) -> Decimal:
    return Decimal(str(value)).quantize(Decimal("0.01"))


def sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def words(text: str) -> int:
    """Of a text in Latin letters in which white space, and nothing else, stands between words."""
    return len(text.split())


def html(text: str) -> str:
    """Of a text without markup: an empty line ends a paragraph, a line break is one."""
    lines = "<br>\n"
    return "".join(f"<p>{paragraph.replace(chr(10), lines)}</p>\n" for paragraph in text.split("\n\n"))


def genre_slug(name: str) -> str:
    """`Tiên Hiệp`, `tiên hiệp` and `tien-hiep` are one genre."""
    letters = unicodedata.normalize("NFD", name.lower().replace("đ", "d"))
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "-".join("".join(letter if letter.isalnum() else " " for letter in bare).split())


def _apply_story(stories: dict[Ref, Story], owners: dict[tuple[str, str], Ref], item: Item) -> Story | None:
    """None: its slug is another's."""
    fields = item.fields
    story = stories.get(item.story)
    if fields.get("deleted"):
        story = stories.setdefault(item.story, Story(item.at))
        story.at, story.is_deleted = item.at, True
        return story
    seat = item.source, fields["slug"]
    owner = owners.get(seat)
    if owner is not None and owner != item.story:
        other = stories[owner]
        if other.slug == fields["slug"] and not other.is_deleted:
            return None
    owners[seat] = item.story
    story = stories.setdefault(item.story, Story(item.at))
    story.at, story.is_deleted = item.at, False
    story.slug, story.title = fields["slug"], fields["title"]
    for name in _OPTIONAL:
        if name in fields and (fields[name] is not None or name in _NULLABLE):
            setattr(story, name, fields[name])
    if fields.get("aliases") is not None:
        story.aliases = frozenset(fields["aliases"])
    if fields.get("genres") is not None:
        story.genres = frozenset(map(genre_slug, fields["genres"]))
    return story


def _apply_chapter(chapters: list[Chapter], item: Item) -> Chapter:
    fields = item.fields
    chapter = _find(chapters, fields)
    if chapter is None:
        named = fields.get("chapter_no")
        chapter = Chapter(item.at, fields.get("source_chapter_id"), None if named is None else number(named))
        chapters.append(chapter)
    chapter.at = item.at
    chapter.is_deleted = bool(fields.get("deleted"))
    if chapter.is_deleted:
        return chapter
    chapter.ref = fields.get("source_chapter_id") or chapter.ref
    chapter.number = number(fields["chapter_no"])
    chapter.slug, chapter.title, chapter.text = fields["slug"], fields["title"], fields["content_raw"]
    if fields.get("is_published") is not None:
        chapter.is_published = bool(fields["is_published"])
    if fields.get("published_at") is not None:
        chapter.published_at = moment(fields["published_at"]).replace(microsecond=0)
    return chapter


def _find(chapters: Sequence[Chapter], fields: Mapping[str, Any]) -> Chapter | None:
    """By the source's id; else by number, and then only one that has no id, if the item has one."""
    ref = fields.get("source_chapter_id")
    named = None if fields.get("chapter_no") is None else number(fields["chapter_no"])
    for chapter in chapters:
        if ref is not None and chapter.ref == ref:
            return chapter
    for chapter in chapters:
        if named is not None and chapter.number == named and (ref is None or chapter.ref is None):
            return chapter
    return None
