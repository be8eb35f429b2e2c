"""The generated catalogue, before any database: what it holds, and that it is the same every time."""

import gzip
import hashlib
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.catalogue import rows, words
from loadtests.catalogue.rows import StoryRows
from loadtests.catalogue.sizes import Sizes, chapter_counts
from store import folding

SMALL = Sizes(stories=60, chapters=500, bodies=12)

SOURCE, SOURCE_ID, SLUG, TITLE, ORIGINAL, AUTHOR, SUMMARY = 1, 2, 3, 4, 5, 6, 9
CHAPTER_COUNT, WORD_COUNT, RATING, RATING_COUNT, LAST_CHAPTER, SEARCH_TEXT = 10, 11, 13, 14, 15, 22

# Every letter that Vietnamese has, in lower case and as one character each.
VIETNAMESE = set("aàảãáạăằẳẵắặâầẩẫấậbcdđeèẻẽéẹêềểễếệfghiìỉĩíịjklmnoòỏõóọôồổỗốộơờởỡớợpqrstuùủũúụưừửữứựvwxyỳỷỹýỵz")

DIGEST = """
import hashlib, sys
from loadtests.catalogue import rows
from loadtests.catalogue.sizes import Sizes
stories, chapters, bodies, seed = map(int, sys.argv[1:])
digest = hashlib.sha256(repr(rows.genre_rows()).encode())
for story in rows.stories(Sizes(stories, chapters, bodies, seed)):
    digest.update(repr(story).encode())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def catalogue() -> list[StoryRows]:
    return list(rows.stories(SMALL))


def generated_elsewhere(sizes: Sizes, *, hash_seed: int) -> str:
    """The digest of a catalogue that a process of its own has generated."""
    numbers = (sizes.stories, sizes.chapters, sizes.bodies, sizes.seed)
    return subprocess.run(
        [sys.executable, "-c", DIGEST, *map(str, numbers)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_equal_sizes_and_seed_give_equal_rows_in_every_process() -> None:
    first = generated_elsewhere(SMALL, hash_seed=1)
    assert generated_elsewhere(SMALL, hash_seed=2) == first
    assert generated_elsewhere(Sizes(60, 500, 12, seed=2), hash_seed=1) != first


def test_another_seed_gives_other_stories(catalogue: list[StoryRows]) -> None:
    others = rows.stories(Sizes(SMALL.stories, SMALL.chapters, SMALL.bodies, seed=2))
    same = [one for one, other in zip(catalogue, others, strict=True) if one.story[TITLE] == other.story[TITLE]]
    assert len(same) < SMALL.stories / 4


@given(stories=st.integers(1, 400), chapters=st.integers(0, 5_000), seed=st.integers(-(2**70), 2**70))
def test_chapters_are_spread_over_the_stories_exactly(stories: int, chapters: int, seed: int) -> None:
    counts = chapter_counts(Sizes(stories, chapters, 0, seed))
    assert len(counts) == stories
    assert sum(counts) == chapters
    assert min(counts) >= 0


def test_few_stories_have_most_of_the_chapters() -> None:
    counts = sorted(chapter_counts(Sizes(stories=1_000, chapters=100_000, bodies=0)), reverse=True)
    assert sum(counts[:100]) > 100_000 / 4
    assert counts[0] <= 100_000 * 0.03  # and none of them has all


@pytest.mark.parametrize("sizes", [SMALL, Sizes(10, 0, 0), Sizes(10, 5, 5), Sizes(50, 100, 10, seed=7)])
def test_there_is_exactly_what_was_asked_for(sizes: Sizes) -> None:
    stories = list(rows.stories(sizes))
    assert [story.story[0] for story in stories] == list(range(1, sizes.stories + 1))
    chapters = [chapter for story in stories for chapter in story.chapters]
    assert [chapter[0] for chapter in chapters] == list(range(1, sizes.chapters + 1))
    assert [content[0] for story in stories for content in story.contents] == list(range(1, sizes.bodies + 1))
    for story in stories:
        assert {chapter[1] for chapter in story.chapters} <= {story.story[0]}


def texts(catalogue: list[StoryRows]) -> list[str]:
    """Everything a reader would read."""
    found = [row[2] for row in rows.genre_rows()]
    for story in catalogue:
        found += [story.story[TITLE], story.story[AUTHOR], story.story[SUMMARY]]
        found += [alias for _, alias in story.aliases]
        found += [chapter[5] for chapter in story.chapters]
        found += [gzip.decompress(content[1]).decode() for content in story.contents]
    return found


def test_texts_are_vietnamese_in_nfc(catalogue: list[StoryRows]) -> None:
    everything = texts(catalogue)
    for text in everything:
        assert text == unicodedata.normalize("NFC", text)
        assert text == text.strip()
        assert "{" not in text  # a slot of a pattern that nothing filled
    letters = Counter(letter for text in everything for letter in text.lower() if letter.isalpha())
    assert set(letters) <= VIETNAMESE
    marked = sum(count for letter, count in letters.items() if not letter.isascii())
    assert 0.15 < marked / letters.total() < 0.5  # about a quarter of the letters of real prose
    assert all(letters[letter] for letter in "đấềộươăệ")


def test_the_words_themselves_are_in_nfc() -> None:
    assert unicodedata.is_normalized("NFC", words.TEXT)
    assert all(words.read(words.TEXT).values())


def test_slugs_and_ids_are_unique_within_a_source(catalogue: list[StoryRows]) -> None:
    stories = [story.story for story in rows.stories(Sizes(stories=2_000, chapters=0, bodies=0))]
    assert len({row[TITLE] for row in stories}) < len(stories)  # equal titles do occur
    for column in (SLUG, SOURCE_ID):
        assert len({(row[SOURCE], row[column]) for row in stories}) == len(stories)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row[SLUG]) for row in stories)
    assert len({row[SOURCE] for row in stories}) == len(words.SOURCES)


def test_chapters_of_a_story_are_told_apart_and_in_order(catalogue: list[StoryRows]) -> None:
    for story in catalogue:
        for column in (2, 3, 4):  # source id, number, slug
            assert len({chapter[column] for chapter in story.chapters}) == len(story.chapters)
        numbers = [chapter[3] for chapter in story.chapters]
        assert numbers == sorted(numbers)
        assert all(re.fullmatch(r"chuong-\d+(-5)?", chapter[4]) for chapter in story.chapters)
    assert any(chapter[3] % 1 for story in catalogue for chapter in story.chapters)  # some lie between two others


def test_a_storys_counts_are_those_of_its_visible_chapters(catalogue: list[StoryRows]) -> None:
    hidden = 0
    for story in catalogue:
        visible = [chapter for chapter in story.chapters if chapter[6] and chapter[13] is None]
        hidden += len(story.chapters) - len(visible)
        assert story.story[CHAPTER_COUNT] == len(visible)
        assert story.story[WORD_COUNT] == sum(chapter[7] for chapter in visible)
        assert story.story[LAST_CHAPTER] == max((chapter[3] for chapter in visible), default=None)
        assert (story.story[RATING] is None) == (story.story[RATING_COUNT] == 0)
        assert story.story[RATING] is None or Decimal(1) <= story.story[RATING] <= Decimal(5)
    assert hidden


def test_a_body_is_stored_as_the_service_stores_it(catalogue: list[StoryRows]) -> None:
    contents = [content for story in catalogue for content in story.contents]
    word_counts = {chapter[0]: chapter[7] for story in catalogue for chapter in story.chapters}
    assert len(contents) == SMALL.bodies
    for chapter_id, raw, html, sha256, size, encoding, *_ in contents:
        text = gzip.decompress(raw)
        assert (sha256, size, encoding) == (hashlib.sha256(text).digest(), len(text), "gzip")
        assert word_counts[chapter_id] == len(text.decode().split())
        assert 8_000 < size < 18_000
        paragraphs = text.decode().split("\n\n")
        assert gzip.decompress(html).decode() == "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs)
        assert len(raw) < size / 2
    assert len({content[3] for content in contents}) == SMALL.bodies


def test_genres_reach_from_half_of_the_stories_down_to_ten() -> None:
    stories = list(rows.stories(Sizes(stories=1_000, chapters=0, bodies=0)))
    sizes = Counter(genre_id for story in stories for _, genre_id in story.genres)
    assert set(sizes) <= {row[0] for row in rows.genre_rows()}
    assert 400 < sizes[1] < 600
    assert sizes[len(words.GENRES)] == rows.SMALLEST_GENRE
    assert all(1 <= len(story.genres) <= 5 for story in stories)


def test_search_text_holds_every_name_of_a_story(catalogue: list[StoryRows]) -> None:
    for story in catalogue:
        names = (story.story[TITLE], story.story[ORIGINAL], story.story[AUTHOR], *(alias for _, alias in story.aliases))
        for name in names:
            assert folding.search_text(name) in story.story[SEARCH_TEXT]
