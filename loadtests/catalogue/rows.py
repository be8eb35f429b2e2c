"""The generated catalogue as rows of the tables: a pure function of its sizes and seed.

Each story has a random number generator of its own, so a story does not depend on what was generated before it. Its
chapters come first, because its counts are theirs.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from loadtests.catalogue import prose, words
from loadtests.catalogue.sizes import Sizes, chapter_counts
from store import folding

Row = tuple[Any, ...]

# A fixed end of time: the data must not depend on the day it is made.
END = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
OLDEST_DAYS = 3 * 365
STATUSES = (1, 2, 3, 4, 0)
STATUS_WEIGHTS = (60, 30, 5, 3, 2)
SOURCE_WEIGHTS = (50, 25, 15, 8, 2)
SMALLEST_GENRE = 10
"""How many stories the smallest genre has; the largest has half of them."""


@dataclass(frozen=True, slots=True)
class StoryRows:
    """One story and all that belongs to it, in the order of the columns that `filling` inserts."""

    story: Row
    aliases: list[Row]
    genres: list[Row]
    chapters: list[Row]
    contents: list[Row]


def genre_rows() -> list[Row]:
    return [(number, folding.slug(name), name, END) for number, name in enumerate(words.GENRES, 1)]


def stories(sizes: Sizes) -> Iterator[StoryRows]:
    """Every story in the order of its id. Ids count from 1, without gaps, for stories and for chapters."""
    first_chapter_id = 1
    for story_id, count in enumerate(chapter_counts(sizes), 1):
        yield _story(sizes, story_id, count, first_chapter_id)
        first_chapter_id += count


def _story(sizes: Sizes, story_id: int, chapter_count: int, first_chapter_id: int) -> StoryRows:
    random = Random(f"{sizes.seed}:story:{story_id}")
    title, author = prose.title(random), prose.author(random)
    original = random.choice(words.ORIGINALS) if random.random() < 0.6 else None
    source = random.choices(words.SOURCES, SOURCE_WEIGHTS)[0]
    created_at = END - timedelta(seconds=random.randrange(1, OLDEST_DAYS * 86_400))
    aliases = _aliases(random, story_id)
    chapters, contents = _chapters(random, sizes, story_id, chapter_count, first_chapter_id, created_at)
    visible = [row for row in chapters if row[_PUBLISHED] and row[_DELETED] is None]
    word_count = sum(row[_WORDS] for row in visible)
    rating_count = min(int(random.paretovariate(0.8)) - 1, 1_000_000)
    rating = round(random.triangular(1, 5, 4.3), 2) if rating_count else None
    updated_at = chapters[-1][_UPDATED] if chapters else created_at
    story = (
        story_id,
        source,
        f"{source[:2]}-{story_id}",
        f"{folding.slug(title)}-{story_id}",
        title,
        original,
        author,
        random.choices(STATUSES, STATUS_WEIGHTS)[0],
        f"https://covers.example/{source}/{story_id}.jpg" if random.random() < 0.9 else None,
        prose.summary(random),
        len(visible),
        word_count,
        _popularity(len(visible), word_count, rating or 0.0, rating_count),
        None if rating is None else Decimal(f"{rating:.2f}"),
        rating_count,
        max((row[_NUMBER] for row in visible), default=None),
        int(random.paretovariate(0.7) * 50) % 50_000_000,
        created_at,
        updated_at,
        created_at,
        updated_at,
        updated_at if random.random() < 0.01 else None,
        folding.search_text(title, original, author, *(alias for _, alias in aliases)),
    )
    return StoryRows(story, aliases, _genres(random, sizes, story_id), chapters, contents)


# Where in a chapter's row the story looks.
_NUMBER, _PUBLISHED, _WORDS, _UPDATED, _DELETED = 3, 6, 7, 12, 13


def _chapters(
    random: Random, sizes: Sizes, story_id: int, count: int, first_id: int, began_at: datetime
) -> tuple[list[Row], list[Row]]:
    if not count:
        return [], []
    rows: list[Row] = []
    contents: list[Row] = []
    apart_seconds = max(1.0, (END - began_at).total_seconds() * random.random() / count)
    for index in range(count):
        chapter_id, number = first_id + index, Decimal(index + 1)
        if random.random() < 0.01:
            number -= Decimal("0.5")  # side stories are numbered between two chapters
        at = began_at + timedelta(seconds=int(apart_seconds * index))
        word_count = random.randrange(1_200, 3_600)
        if chapter_id <= sizes.bodies:
            body = prose.stored(prose.body(Random(f"{sizes.seed}:body:{chapter_id}")))
            contents.append((chapter_id, body.raw, body.html, body.sha256, body.size, "gzip", at, at))
            word_count = body.word_count
        luck = random.random()
        row = (
            chapter_id,
            story_id,
            f"{story_id}-{index + 1}",
            number,
            f"chuong-{number}".replace(".", "-"),
            f"Chương {number}: {prose.chapter_title(random)}",
            0 if luck < 0.02 else 1,
            word_count,
            int(word_count * luck),
            at,
            at,
            at,
            at,
            at if luck > 0.995 else None,
        )
        rows.append(row)
    return rows, contents


def _aliases(random: Random, story_id: int) -> list[Row]:
    if random.random() >= 0.3:
        return []
    found = {folding.fold(alias): alias for alias in (prose.title(random) for _ in range(random.randint(1, 2)))}
    return [(story_id, alias) for alias in found.values()]


def _genres(random: Random, sizes: Sizes, story_id: int) -> list[Row]:
    chosen = {1} if random.random() < 0.5 else set()
    middle = range(2, len(words.GENRES))
    chosen.update(random.choices(middle, [1 / place for place in middle], k=random.randint(1, 3)))
    if story_id % max(1, sizes.stories // SMALLEST_GENRE) == 0 and story_id <= _last_of_smallest(sizes):
        chosen.add(len(words.GENRES))
    return [(story_id, genre_id) for genre_id in sorted(chosen)]


def _last_of_smallest(sizes: Sizes) -> int:
    return max(1, sizes.stories // SMALLEST_GENRE) * SMALLEST_GENRE


def _popularity(chapters: int, word_count: int, rating: float, rating_count: int) -> Decimal:
    """The formula of the specification (§9, version 1)."""
    return Decimal(f"{chapters * 0.3 + word_count / 10_000 * 0.2 + rating * rating_count * 0.5:.4f}")


def chunks(rows: Iterator[StoryRows], *, stories: int) -> Iterator[list[StoryRows]]:
    while chunk := list(itertools.islice(rows, stories)):
        yield chunk
