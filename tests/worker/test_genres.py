"""Slugs of genres: one for every way to write a genre, and one genre for each."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker import genres

SIGNS = st.characters(exclude_categories=("Cs", "Cn", "Cc"))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Tiên Hiệp", "tien-hiep"),
        ("tien-hiep", "tien-hiep"),
        ("  TIÊN / HIỆP ", "tien-hiep"),
        ("Đô Thị", "do-thi"),
        ("Sci-Fi & Fantasy", "sci-fi-fantasy"),
        ("Ｆａｎｔａｓｙ", "fantasy"),
        ("仙侠", "4ed9-4fa0"),
        ("❤️ Ngôn Tình", "ngon-tinh"),
        ("***", "2a-2a-2a"),
    ],
)
def test_a_genre_has_one_slug_however_it_is_written(name: str, slug: str) -> None:
    for form in ("NFC", "NFD"):
        assert genres.slug(unicodedata.normalize(form, name)) == slug


def test_upper_and_lower_case_are_one_genre_in_any_script() -> None:
    assert genres.slug("ФЭНТЕЗИ") == genres.slug("фэнтези")


@pytest.mark.parametrize(
    ("one", "other"),
    [("仙侠 2", "武侠 2"), ("18禁", "18"), ("玄幻A", "都市A"), ("Фэнтези 18+", "18+"), ("ガ", "カ"), ("हिन्दी", "हनद")],
)
def test_genres_that_differ_in_letters_that_are_not_latin_are_two(one: str, other: str) -> None:
    assert genres.slug(one) != genres.slug(other)


def test_long_names_that_begin_alike_are_two_genres() -> None:
    one, other = genres.slug("仙" * 119 + "侠"), genres.slug("仙" * 119 + "武")
    assert one != other
    assert len(one) == len(other) == genres.MAX_CHARACTERS


@settings(deadline=None, max_examples=150)
@given(st.text(SIGNS, min_size=1, max_size=120))
def test_every_name_has_a_slug_that_fits_into_its_column_and_an_address(name: str) -> None:
    slug = genres.slug(name)
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", slug)
    assert len(slug) <= genres.MAX_CHARACTERS
    assert genres.slug(unicodedata.normalize("NFC", name)) == genres.slug(unicodedata.normalize("NFD", name))
