"""Text as search compares it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.connection import Connection
from store import folding


@pytest.mark.parametrize(
    ("text", "slug", "search"),
    [
        ("Đấu Phá Thương Khung", "dau-pha-thuong-khung", "dau_ pha_ thuong_ khung_"),
        ("Đế Bá", "de-ba", "de_ ba_"),
        ("Ỷ Thiên", "y-thien", "y__ thien_"),
        ("  «Kiếm» — Lai! 2 ", "kiem-lai-2", "kiem_ lai_ 2__"),
        ("斗破苍穹", "", "斗__ 破__ 苍__ 穹__"),
        ("ソードアート・オンライン 2", "2", "ソ__ ー__ ト__ ア__ ー__ ト__ オ__ ン__ ラ__ イ__ ン__ 2__"),
        ("나 혼자만 레벨업", "", "나__ 혼자만_ 레벨업_"),
        ("Ｆａｔｅ／Zero", "fate-zero", "fate_ zero_"),
        ("_ * - + @ ( ) \" '", "", ""),
    ],
)
def test_folding(text: str, slug: str, search: str) -> None:
    for form in ("NFC", "NFD"):
        written = unicodedata.normalize(form, text)
        assert folding.slug(written) == slug
        assert folding.search_text(written, None) == search


@given(text=st.text(max_size=50))
def test_folding_twice_is_folding_once_and_every_token_is_long_enough(text: str) -> None:
    assert folding.fold(folding.fold(text)) == folding.fold(text)
    for token in folding.tokens(text):
        assert folding.MIN_TOKEN_LETTERS <= len(token) <= folding.MAX_TOKEN_LETTERS + 1
        assert token.endswith("_")


def test_names_without_end_are_cut_between_two_words() -> None:
    text = folding.search_text(*["Đấu Phá Thương Khung 斗破苍穹"] * 3000)
    assert folding.MAX_SEARCH_BYTES - 20 < len(text.encode()) <= folding.MAX_SEARCH_BYTES
    assert set(text.split()) == {"dau_", "pha_", "thuong_", "khung_", "斗__", "破__", "苍__", "穹__"}


@pytest.mark.parametrize("title", ["Đế Bá", "Thế Giới Hoàn Mỹ", "Y", "The Who", "斗破苍穹"])
def test_the_index_finds_short_syllables_and_stop_words(conn: Connection, title: str) -> None:
    conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, search_text, created_at, updated_at)"
        " VALUES ('a', '1', 'a', %s, %s, NOW(), NOW()), ('a', '2', 'b', 'B', 'khac_ han_', NOW(), NOW())",
        (title, folding.search_text(title)),
    )
    for token in folding.tokens(title):
        found = conn.fetch_all(
            "SELECT source_story_id FROM wp_novel_stories WHERE MATCH(search_text) AGAINST (%s IN BOOLEAN MODE)",
            (f"+{token}",),
        )
        assert found == [("1",)], token
