"""Words of a text, as a reader would count them."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker import words

_WRITTEN_WITHOUT_SPACES = re.compile(
    r"CJK (UNIFIED|COMPATIBILITY) IDEOGRAPH|(HALFWIDTH )?KATAKANA|HIRAGANA|HENTAIGANA|HANGZHOU|MASU"
    r"|(VERTICAL )?IDEOGRAPHIC (ITERATION|CLOSING|NUMBER)|VERTICAL KANA"
)

VIETNAMESE = st.text("aáàảãạăắằâấbcđeêếghiíklmnoôốơởpqrstuưữvxyỳ ĐẾƯ \n\t\u00a0.,!?-–—…“”‘’«»【】*0123×", max_size=200)
CHINESE = st.text("天地玄黄宇宙々〇。，、！？“”《》（）　 \nabc1がカー・ﾞ", max_size=200)
# Characters that this Python does not know yet have no name to judge by.
ANYTHING = st.text(st.characters(exclude_categories=("Cs", "Cn"), exclude_characters="\u1680"), max_size=200)


def is_word_of_its_own(character: str) -> bool:
    return character.isalnum() and bool(_WRITTEN_WITHOUT_SPACES.match(unicodedata.name(character, "")))


def is_taken_for_a_letter(character: str) -> bool:
    """What is none, but has the lead byte of letters."""
    return character in "×÷" or "\u1000" <= character < "\u1e00" or "\u1f00" <= character < "\u2000"


def plainly_counted(text: str) -> int:
    """Slow and right: character by character."""
    found, inside = 0, False
    for character in text:
        if is_word_of_its_own(character):
            found, inside = found + 1, False
        elif character.isspace():
            inside = False
        elif (character.isalnum() or is_taken_for_a_letter(character)) and not inside:
            found, inside = found + 1, True
    return found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("Đấu Phá Thương Khung", 4),
        ("  Hắn nói :  “ Đi ! ”\r\n\r\n*** — ... -\n", 3),
        ("“Không… thể… nào…”", 3),
        ("mười-hai 3,14 a/b x_y", 4),
        ("một\u00a0hai\u3000ba\u2028bốn\u200bnăm", 4),
        ("3 × 4 ÷ 2", 5),
        ("☆ ☆ ☆ 【Hệ thống】 ～ ！", 2),
        ("½ ² ① Ⅲ ª", 5),
        ("斗破苍穹", 4),
        ("“你好，世界！”——《书》……", 5),
        ("iPhone手机 v2版", 5),
        ("人々は、コーヒーを飲む。", 10),
        ("二〇二六年", 5),
        ("ｶﾀｶﾅ・カナ", 6),
        ("그는 산을 바라보았다.", 3),
        ("Он шёл — домой", 3),
        ("😀 😀 👍🏽 ok", 1),
        ("𠮷野家", 3),
        ("\ufeffMột", 1),
    ],
)
def test_words_are_counted_as_a_reader_would(text: str, count: int) -> None:
    assert words.count(text.encode()) == count
    assert plainly_counted(text) == count


@given(VIETNAMESE | CHINESE | ANYTHING | st.lists(VIETNAMESE | CHINESE | ANYTHING).map("".join))
def test_every_text_has_as_many_words_as_counting_by_character_finds(text: str) -> None:
    assert words.count(text.encode()) == plainly_counted(text)


@given(VIETNAMESE | CHINESE | ANYTHING)
def test_composed_and_decomposed_text_have_the_same_words(text: str) -> None:
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    assert words.count(text.encode()) == words.count(composed.encode()) == words.count(decomposed.encode())


def test_every_character_is_told_apart() -> None:
    """Alone among letters that are counted fast: as a word, as white space or as neither."""
    wrong = []
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in ("Cs", "Cn", "Co") or is_taken_for_a_letter(character):
            continue
        text = f"à {character} a{character}à"
        if words.count(text.encode()) != plainly_counted(text):
            wrong.append(f"{code:04x}")
    assert not wrong


def test_a_word_ends_where_chinese_begins_and_goes_on_after_punctuation() -> None:
    assert words.count("abc中def".encode()) == 3
    assert words.count("abc，def".encode()) == words.count(b"abc,def") == 1
