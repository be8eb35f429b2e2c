"""What crawlers push: stories and chapters of a few sources, changed again and again, in batches, out of order.

A seed makes it, and the same seed makes the same. The order in which it arrives must not matter for how it ends, so:

- Every story has a clock of its own, and no two different items of it have the same `updated_at_source`.
- Whether an item has a certain optional field is decided once for each story and chapter: what an item leaves out stays
  as it is, which would depend on what was there before.
- A chapter is deleted by what all its items have in common: one that gets its id later by its number, others by id.
- Slugs and numbers belong to one story or chapter, but for pairs of chapters that swap them: both take part each time.
- What fails is decided beforehand: a few stories, the anchors, are there before anything else is pushed, are never
  deleted and keep their slugs. Others that want one of these fail whenever they come. So does an anchor's own last
  update, if it wants the slug of the anchor before it: nothing newer can make it stale.

What a source says is free beyond that: it deletes and brings back, sends an item twice in a batch or in several, old
ones after new ones, chapters before their stories, new times with nothing else new, and some that are no items at all.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any

from loadtests.catalogue import words
from loadtests.chaos.model import CHAPTERS, STORIES, Item, number

SOURCES = ("chaos-a", "chaos-b", "chaos-c")
ANCHOR_EVERY = 20
MAX_BATCH_ITEMS = 300
# As a crawler would fill its batches; some room is left for what the door refuses.
FEW_ITEMS, MANY_ITEMS = 20, 280
# Share of the stories in which two chapters swap numbers, and of what is sent a second time: elsewhere, at once.
SWAPPING = 0.2
REPEATED, DOUBLED = 0.05, 0.03
BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
_ZONES = (UTC, timezone(timedelta(hours=7)), timezone(timedelta(hours=-4, minutes=-30)))
_GENRES = tuple((name, name.lower(), name.upper(), name.replace(" ", "-")) for name in words.GENRES)

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    source: str
    kind: str
    items: tuple[Fields, ...]
    rejected: dict[int, str]
    """By place in the batch: what the door refuses, and the code it says."""

    @property
    def accepted(self) -> list[int]:
        return [place for place in range(len(self.items)) if place not in self.rejected]

    def body(self) -> bytes:
        return json.dumps({"source": self.source, "items": self.items}, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Feed:
    first: tuple[Batch, ...]
    """What has to be there before anything else is pushed."""
    rest: tuple[Batch, ...]

    @property
    def batches(self) -> tuple[Batch, ...]:
        return self.first + self.rest

    @property
    def items(self) -> int:
        return sum(len(batch.items) for batch in self.batches)


def accepted(batches: Sequence[Batch]) -> list[Item]:
    """What the service takes of them, in the order of batches and places."""
    return [Item(batch.source, batch.kind, batch.items[place]) for batch in batches for place in batch.accepted]


def make(*, seed: int, items: int) -> Feed:
    """About so many items."""
    random = Random(seed)
    first: dict[str, list[Fields]] = {source: [] for source in SOURCES}
    rest: list[_Parcel] = []
    made = number_of_story = 0
    while made < items:
        source = SOURCES[number_of_story % len(SOURCES)]
        story = _Story(random, source, number_of_story // len(SOURCES))
        parcels = list(story.parcels())
        if story.is_anchor:
            first[source].append(parcels.pop(0).items[0])
        parcels += [replace(parcel, position=random.random()) for parcel in parcels if random.random() < REPEATED]
        rest += parcels
        made += sum(len(parcel.items) for parcel in parcels) + story.is_anchor
        number_of_story += 1
    rest.sort(key=lambda parcel: parcel.position)
    return Feed(
        tuple(_batch(random, source, STORIES, anchors) for source, anchors in first.items() if anchors),
        tuple(_batches(random, rest, most=max(FEW_ITEMS, min(MANY_ITEMS, items // 60)))),
    )


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Items that travel together."""

    source: str
    kind: str
    items: list[Fields]
    position: float
    """When they are pushed: from 0 to 1."""


@dataclass(slots=True)
class _Chapter:
    number: float
    ref: str | None
    ref_from: int
    """Its first generation with an id."""
    has_published_at: bool
    has_is_published: bool
    partner: "_Chapter | None" = None
    revision: int = 0

    @property
    def is_deleted_by_number(self) -> bool:
        return self.ref is None or self.ref_from > 0


@dataclass(slots=True)
class _Story:
    """One story and its chapters, as their source changes them."""

    random: Random
    source: str
    place: int
    late: float = 0.0
    now: datetime = BEGINNING
    optional: tuple[str, ...] = ()
    chapters: list[_Chapter] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        self.now += timedelta(minutes=random.randrange(100_000), microseconds=random.randrange(1_000_000))
        every = ("title_original", "author_name", "status", "cover_url", "summary", "language", "aliases", "genres")
        self.optional = tuple(name for name in every if random.random() < 0.7)
        self.late = 0.5 if random.random() < 0.1 else 0.0
        for place in range(1, random.randrange(5, 15)):
            self.chapters.append(self._chapter(place))
        if random.random() < SWAPPING:
            left, right = self.chapters[:2]
            left.partner, right.partner = right, left
            for chapter in (left, right):
                chapter.ref, chapter.ref_from = f"c{chapter.number}", 0

    @property
    def ref(self) -> str:
        # To the byte: two sources have the same ones, and some differ in nothing but their case.
        return f"{'S' if self.place % 10 == 9 else 's'}{self.place - (self.place % 10 == 9)}"

    @property
    def slug(self) -> str:
        return f"truyen-{self.place}"

    @property
    def is_anchor(self) -> bool:
        return self.place % ANCHOR_EVERY == 0

    def parcels(self) -> Iterator[_Parcel]:
        """An anchor's first item comes first."""
        random = self.random
        generations = random.randrange(2, 7)
        yield self._sent(STORIES, [self._update(0)])
        for generation in range(generations):
            if generation and random.random() < 0.6:
                yield self._sent(STORIES, [self._story_item(generation)])
            swapped = set()
            for chapter in self.chapters:
                if chapter.partner and generation:
                    if chapter.number not in swapped and random.random() < 0.5:
                        swapped |= {chapter.number, chapter.partner.number}
                        yield from self._swap(chapter, chapter.partner)
                elif generation == 0 or random.random() < 0.6:
                    yield self._sent(CHAPTERS, [self._chapter_item(chapter, generation)])
        yield from self._conflicts()

    def _sent(self, kind: str, items: list[Fields]) -> _Parcel:
        random = self.random
        if random.random() < DOUBLED:
            items = items + [dict(item) for item in items]
        position = random.random()
        if kind == STORIES:
            position = self.late + position * 0.4
        return _Parcel(self.source, kind, items, position)

    def _tick(self) -> str:
        """A later time than any before, as a source would write it."""
        random = self.random
        self.now += timedelta(seconds=random.randrange(3000), microseconds=random.randrange(1, 1_000_000))
        text = self.now.astimezone(random.choice(_ZONES)).isoformat()
        return text.replace("+00:00", "Z")

    # -- the story ----------------------------------------------------------------------------------------

    def _story_item(self, generation: int) -> Fields:
        if not self.is_anchor and self.random.random() < 0.15:
            return {"source_story_id": self.ref, "updated_at_source": self._tick(), "deleted": True}
        return self._update(generation)

    def _update(self, generation: int) -> Fields:
        slug = self.slug if self.is_anchor or self.random.random() < 0.7 else f"{self.slug}-v{generation}"
        return {
            "source_story_id": self.ref,
            "slug": slug,
            "title": f"{self._title()} {generation}",
            "updated_at_source": self._tick(),
        } | {name: self._optional(name) for name in self.optional}

    def _title(self) -> str:
        return f"{self.random.choice(words.TITLE_HEADS)} {self.place}"

    def _optional(self, name: str) -> Any:
        random = self.random
        match name:
            case "status":
                return random.randrange(0, 5)
            case "language":
                return random.choice(("vi", "en", "zh-Hant"))
            case "cover_url":
                return random.choice((None, f"https://img.example/{random.randrange(1000)}.jpg"))
            case "aliases":
                return [f"Biệt danh {letter} {self.place}" for letter in random.sample("abcdefgh", random.randrange(4))]
            case "genres":
                named = random.sample(_GENRES, random.randrange(4))
                # Now and then one that nobody has had before: several workers make it at the same time.
                return [random.choice(names) for names in named] + [f"Mới {self.now.month}-{self.now.day}"]
        return random.choice((None, f"{name} {random.choice(words.PEOPLE)} {random.randrange(1000)}"))

    def _conflicts(self) -> Iterator[_Parcel]:
        if not self.is_anchor:
            return
        self.now += timedelta(days=1000)  # later than the beginning of any other
        rival = self._update(0) | {"source_story_id": f"rival-{self.place}"}
        yield self._sent(STORIES, [rival])
        if self.place:
            taken = f"truyen-{self.place - ANCHOR_EVERY}"
            yield self._sent(STORIES, [self._update(0) | {"slug": taken}])

    # -- its chapters -------------------------------------------------------------------------------------

    def _chapter(self, place: int) -> _Chapter:
        random = self.random
        manner = random.random()
        return _Chapter(
            number=place + 0.5 if random.random() < 0.1 else place,
            ref=None if manner < 0.2 else f"c{place}",
            ref_from=random.randrange(1, 4) if 0.2 <= manner < 0.4 else 0,
            has_published_at=random.random() < 0.5,
            has_is_published=random.random() < 0.5,
        )

    def _chapter_item(self, chapter: _Chapter, generation: int) -> Fields:
        if self.random.random() < 0.12:
            return self._chapter_deletion(chapter)
        return self._chapter_update(chapter, with_ref=generation >= chapter.ref_from)

    def _chapter_deletion(self, chapter: _Chapter) -> Fields:
        named = {"chapter_no": chapter.number} if chapter.is_deleted_by_number else {"source_chapter_id": chapter.ref}
        return {"source_story_id": self.ref, "updated_at_source": self._tick(), "deleted": True} | named

    def _chapter_update(self, chapter: _Chapter, *, with_ref: bool = True) -> Fields:
        random = self.random
        if random.random() < 0.7:
            chapter.revision += 1
        made: Fields = {
            "source_story_id": self.ref,
            "chapter_no": chapter.number,
            "slug": f"chuong-{str(chapter.number).replace('.', '-')}",
            "title": f"Chương {chapter.number}: {random.choice(words.CHAPTER_HEADS)}",
            "content_raw": self._text(chapter),
            "updated_at_source": self._tick(),
        }
        if chapter.ref and with_ref:
            made["source_chapter_id"] = chapter.ref
        if chapter.has_published_at:
            made["published_at"] = (BEGINNING + timedelta(minutes=random.randrange(100_000))).isoformat()
        if chapter.has_is_published:
            made["is_published"] = random.random() < 0.8
        return made

    def _text(self, chapter: _Chapter) -> str:
        """The same for each revision of a chapter, and another for each other one."""
        random = Random(f"{self.source} {self.place} {chapter.ref or chapter.number} {chapter.revision}")
        paragraphs = [
            " ".join(random.choices(words.WORDS, k=random.randrange(5, 60))) for _ in range(random.randrange(1, 6))
        ]
        return f"Bản {chapter.revision}\n" + "\n\n".join(paragraphs)

    def _swap(self, one: _Chapter, other: _Chapter) -> Iterator[_Parcel]:
        """Both take the other's number and slug, most often in one batch."""
        one.number, other.number = other.number, one.number
        items = [self._chapter_update(one), self._chapter_update(other)]
        if self.random.random() < 0.9:
            yield self._sent(CHAPTERS, items)
        else:
            yield from (self._sent(CHAPTERS, [item]) for item in items)
        if self.random.random() < 0.2:
            yield self._sent(CHAPTERS, [self._chapter_deletion(one)])


# -- batches --------------------------------------------------------------------------------------------


def _batches(random: Random, parcels: Sequence[_Parcel], *, most: int) -> Iterator[Batch]:
    """Parcels in their order, those of each source and kind in batches of any size."""
    waiting: dict[tuple[str, str], list[Fields]] = {}
    sizes: dict[tuple[str, str], int] = {}
    for parcel in parcels:
        key = parcel.source, parcel.kind
        items = waiting.setdefault(key, [])
        items += parcel.items
        if len(items) >= sizes.setdefault(key, _size(random, most)):
            yield _batch(random, *key, waiting.pop(key))
            sizes.pop(key)
    for key, items in waiting.items():
        yield _batch(random, *key, items)


def _size(random: Random, most: int) -> int:
    return random.choice((1, 5, FEW_ITEMS, most // 3, most // 2, most, most))


def _batch(random: Random, source: str, kind: str, items: Sequence[Fields]) -> Batch:
    """With some items more that the door has to refuse."""
    whole = list(items)
    for item in items:
        chance = random.random()
        if len(whole) < MAX_BATCH_ITEMS and chance < 0.01:
            whole.insert(random.randrange(len(whole) + 1), dict(item))
        elif len(whole) < MAX_BATCH_ITEMS and chance < 0.015 and "slug" in item:
            whole.insert(random.randrange(len(whole) + 1), item | {"slug": "Không Hợp Lệ"})
    return Batch(source, kind, tuple(whole), _rejected(whole))


def _rejected(items: Sequence[Fields]) -> dict[int, str]:
    """Of several items with one name in a batch the newest is taken, the last of those that are equal."""
    rejected = {place: "invalid_slug" for place, item in enumerate(items) if " " in item.get("slug", "")}
    taken: dict[object, int] = {}
    for place, item in enumerate(items):
        if place in rejected:
            continue
        name = _name(item)
        loser = taken.get(name)
        taken[name] = place
        if loser is not None:
            if _at(items[loser]) > _at(item):
                loser, taken[name] = place, loser
            rejected[loser] = "duplicate_item"
    return rejected


def _name(item: Fields) -> object:
    ref = item.get("source_chapter_id")
    if ref is not None or "chapter_no" not in item:
        return item["source_story_id"], ref
    return item["source_story_id"], number(item["chapter_no"])


def _at(item: Fields) -> datetime:
    return datetime.fromisoformat(item["updated_at_source"])
