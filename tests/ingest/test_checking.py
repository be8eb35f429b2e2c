"""Every field and every fault: a code that stays the same, and a message that names the field."""

import json
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from ingest import items
from ingest.batch import Kind
from store import bodies
from tests.ingest.checked import CHAPTER, STORY, chapter_frame, check, frames, refusal, story_frame
from tests.ingest.client import chapter, story

MAX_BYTES = 262144
# A letter that is two in NFC: what it takes is counted as it is stored.
GROWS = "\u0958"
HALF_PAIR = "a\ud800"

NOT_TEXT = [1, 1.5, True, ["a"], {"a": 1}]
NOT_A_TIME = [1771660800, 1.5, True, [], {}]
BAD_TIMES = [
    *("", "yesterday", "2026-02-21", "2026-02-21T08:00:00", "2026-02-21T08:00Z", "2026-02-30T08:00:00Z"),
    *("2026-02-21T24:00:00Z", "2026-02-21T08:00:60Z", "2026-02-21T08:00:00+24:00", "2026-02-21T08:00:00Z\n"),
    *("1969-12-31T23:59:59Z", "1970-01-01T00:00:00+00:01", "0001-01-01T00:00:00+14:00", "0000-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.9999999Z", "12026-02-21T08:00:00Z", "\ud800"),
]
IDENTIFIER: dict[str, list[Any]] = {
    "invalid_type": NOT_TEXT,
    "empty": [""],
    "too_long": ["a" * 192, "a" * 100_000, "ấ" * 192, GROWS * 96],
    "invalid_text": ["a\0", "a\n", "\x7f", "a\x85", HALF_PAIR],
}
SLUG: dict[str, list[Any]] = {
    "invalid_type": [*NOT_TEXT, None],
    "invalid_slug": ["", " ", "A", "a_b", "a b", "a/b", "a\n", "\na", "a\0", "đ", "a\u0301", "%61", HALF_PAIR],
    "too_long": ["a" * 192],
}
TITLE: dict[str, list[Any]] = {
    "invalid_type": [*NOT_TEXT, None],
    "empty": ["", " ", "\n\t ", "\u00a0"],
    "too_long": ["a" * 256, "ấ" * 256, GROWS * 128],
    "invalid_text": ["a\0", "\x1b[31m", HALF_PAIR, "\udc00\ud800"],
}

STORY_FAULTS: dict[str, dict[str, list[Any]]] = {
    "source_story_id": {**IDENTIFIER, "invalid_type": [*NOT_TEXT, None]},
    "slug": SLUG,
    "title": TITLE,
    "updated_at_source": {"invalid_type": [*NOT_A_TIME, None], "invalid_datetime": BAD_TIMES},
    "title_original": {
        "invalid_type": NOT_TEXT,
        "too_long": ["a" * 256, GROWS * 128],
        "invalid_text": ["a\0", HALF_PAIR],
    },
    "author_name": {"invalid_type": NOT_TEXT, "too_long": ["a" * 192, GROWS * 96], "invalid_text": ["a\0", HALF_PAIR]},
    "status": {"invalid_type": ["1", 1.0, True, [], {}], "out_of_range": [-1, 5, 10**30, -(10**30)]},
    "cover_url": {
        "invalid_type": NOT_TEXT,
        "invalid_url": [
            *(
                "javascript:alert(1)",
                "//cdn.example/a.jpg",
                "cdn.example/a.jpg",
                "ftp://a/b",
                "data:image/png;base64,AA",
            ),
            *("https://", "https://a b", " https://a", "https://a\u2028b", "https://a\tb", "https://a\n", HALF_PAIR),
        ],
        "too_long": ["https://a/" + "a" * 1015, "https://a/" + GROWS * 1000],
    },
    "summary": {"invalid_type": NOT_TEXT, "too_long": ["a" * 65536], "invalid_text": ["a\0", HALF_PAIR]},
    "language": {
        "invalid_type": NOT_TEXT,
        "invalid_language": ["VI", "v", "vi_VN", "viet", HALF_PAIR],
        "too_long": ["vi-" + "a" * 8],
    },
    "aliases": {
        "invalid_type": ["a", 1, True, {}, [1], [None], ["a", ["b"]], ["a" * 9, 5]],
        "too_many": [["a"] * 101, [f"a{number}" for number in range(5000)]],
        "too_long": [["a" * 256], ["a", "ấ" * 256], [GROWS * 128], ["a" * 256, 5], ["a" * 256, HALF_PAIR]],
        "empty": [[""], ["a", " "]],
        "invalid_text": [["a\0"], [HALF_PAIR]],
    },
    "genres": {
        "invalid_type": ["a", 1, True, {}, [1], [None]],
        "too_many": [["a"] * 51],
        "too_long": [["a" * 121]],
        "empty": [[""], ["a", "\t"]],
        "invalid_text": [["\0"]],
    },
    "deleted": {"invalid_type": ["true", 1, 0, [], {}]},
}
CHAPTER_FAULTS: dict[str, dict[str, list[Any]]] = {
    "source_story_id": STORY_FAULTS["source_story_id"],
    "chapter_no": {
        "invalid_type": ["1", "", True, None, [], {}],
        "invalid_chapter_no": [-1, -0.01, 1.234, 0.001, 1e-300, 100_000_000, 99_999_999.995, 1e308, 10**30],
    },
    "slug": SLUG,
    "title": TITLE,
    "content_raw": {
        "invalid_type": [*NOT_TEXT, None],
        "empty": [""],
        "invalid_text": ["a\0b", HALF_PAIR],
        "content_too_large": ["a" * (MAX_BYTES + 1), "ấ" * 87382, GROWS * 43691, "ấ" * 2_000_000],
    },
    "updated_at_source": STORY_FAULTS["updated_at_source"],
    "source_chapter_id": IDENTIFIER,
    "published_at": {"invalid_type": NOT_A_TIME, "invalid_datetime": BAD_TIMES},
    "is_published": {"invalid_type": ["1", "true", 1.0, [], {}], "out_of_range": [2, -1]},
    "deleted": STORY_FAULTS["deleted"],
}
FAULTS = [
    (STORY, story(), STORY_FAULTS, items.StoryItem),
    (CHAPTER, chapter(), CHAPTER_FAULTS, items.ChapterItem),
]


def _faults() -> Iterator[Any]:
    for kind, valid, faults, _ in FAULTS:
        for name, codes in faults.items():
            for code, values in codes.items():
                yield pytest.param(kind, valid, name, code, values, id=f"{kind.job_type}-{name}-{code}")


@pytest.mark.parametrize(("kind", "valid", "name", "code", "values"), list(_faults()))
def test_each_fault_of_each_field_has_its_code_and_names_the_field(
    kind: Kind, valid: dict[str, Any], name: str, code: str, values: list[Any]
) -> None:
    for value in values:
        found, message = refusal(kind, valid | {name: value})
        assert (found, name in message) == (code, True), f"{value!r:.100}: {found}: {message}"
        assert len(message) < 200


@pytest.mark.parametrize(("kind", "valid", "faults", "item_type"), FAULTS)
def test_the_faults_above_are_of_every_field_and_each_required_one_can_be_missing(
    kind: Kind, valid: dict[str, Any], faults: dict[str, Any], item_type: Any
) -> None:
    fields = structs.fields(item_type)
    assert set(faults) == {field.name for field in fields}
    for field in fields:
        if field.required:
            without = {name: value for name, value in valid.items() if name != field.name}
            code = "invalid_slug" if field.name == "slug" else "missing_field"
            assert refusal(kind, without) == (code, f"{field.name} is required.")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400])
def test_a_number_that_no_computer_holds_is_refused_in_every_field(number: str) -> None:
    for kind, valid, faults, _ in FAULTS:
        for name in faults:
            item = json.dumps(valid | {name: "HERE"}).replace('"HERE"', number).encode()
            code, message = refusal(kind, item)
            assert name in message
            if name == "chapter_no":
                assert code == "invalid_chapter_no"
            else:
                assert code in ("invalid_type", "out_of_range"), (name, code)


@pytest.mark.parametrize("item", [1, 1.5, "a", None, True, [], [{}], b"[[[[]]]]", b"1e999"])
def test_an_item_is_an_object(item: Any) -> None:
    for kind in (STORY, CHAPTER):
        assert refusal(kind, item) == ("invalid_type", "The item must be an object.")


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"source_story_id": "a" * 191}, "a" * 191),
        ({"source_story_id": " Ấ/b#%c "}, " Ấ/b#%c "),
        ({"slug": "a" * 191}, "a" * 191),
        ({"slug": "-0-"}, "-0-"),
        ({"title": "ấ" * 255}, "ấ" * 255),
        ({"title": GROWS * 127}, unicodedata.normalize("NFC", GROWS * 127)),
        ({"title": " Đấu \n Phá\u00a0Thương  Khung "}, "Đấu Phá Thương Khung"),
        ({"title_original": "斗" * 255}, "斗" * 255),
        ({"title_original": ""}, None),
        ({"author_name": "😀" * 191}, "😀" * 191),
        ({"author_name": " "}, None),
        ({"status": 0}, 0),
        ({"status": 4}, 4),
        ({"cover_url": "https://a/" + "a" * 1014}, "https://a/" + "a" * 1014),
        ({"cover_url": ""}, None),
        ({"language": ""}, None),
        ({"cover_url": "http://a/ấ.jpg?b=c#d"}, "http://a/ấ.jpg?b=c#d"),
        ({"summary": "a\n\tb " * 13107}, "a\n\tb " * 13107),
        ({"language": "zh-Hant-TW"}, "zh-Hant-TW"),
        ({"aliases": [f"a{number}" for number in range(100)]}, tuple(f"a{number}" for number in range(100))),
        ({"aliases": ["b", "a", " b"]}, ("b", "a")),
        ({"aliases": []}, ()),
        ({"aliases": ["ấ" * 255]}, ("ấ" * 255,)),
        ({"genres": [str(number) * 40 for number in range(100, 150)]}, tuple(str(n) * 40 for n in range(100, 150))),
    ],
    ids=lambda value: f"{value}"[:40] if isinstance(value, dict) else "",
)
def test_what_is_at_a_limit_is_taken(fields: dict[str, Any], kept: Any) -> None:
    (name,) = fields
    assert getattr(story_frame(story(**fields)), name) == kept


@pytest.mark.parametrize("text", ["a" * MAX_BYTES, "ấ" * 87381 + "a", "😀" * 65536, "\t" * 10, " "])
def test_content_of_256_kib_is_taken_byte_for_byte(text: str) -> None:
    content = chapter_frame(chapter(content_raw=text)).content
    assert content is not None
    assert bodies.decompress(content.stored, content.encoding) == text.encode()
    assert content.size == len(text.encode()) <= MAX_BYTES


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        *(("0", "0.00"), ("-0", "0.00"), ("-0.0", "0.00"), ("1", "1.00"), ("12.5", "12.50"), ("0.07", "0.07")),
        *(("1e2", "100.00"), ("1.10", "1.10"), ("99999999", "99999999.00"), ("99999999.99", "99999999.99")),
    ],
)
def test_chapter_numbers_have_two_decimals(number: str, kept: str) -> None:
    frame = chapter_frame(json.dumps(chapter(chapter_no=7777)).replace("7777", number).encode())
    assert frame.chapter_no == Decimal(kept)
    assert str(frame.chapter_no) == kept


@pytest.mark.parametrize(
    ("time", "kept"),
    [
        ("2026-02-21T08:00:00+07:00", "2026-02-21T01:00:00+00:00"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59+00:00"),
        ("2026-02-21t08:00:00.123456z", "2026-02-21T08:00:00.123456+00:00"),
    ],
)
def test_times_are_kept_in_utc(time: str, kept: str) -> None:
    frame = chapter_frame(chapter(updated_at_source=time, published_at=time))
    assert frame.updated_at_source.isoformat() == kept
    assert frame.published_at is not None
    assert frame.published_at.isoformat() == kept


def test_flags_are_booleans_or_one_and_zero() -> None:
    for value, kept in ((1, True), (0, False), (True, True), (False, False), (None, None)):
        assert chapter_frame(chapter(is_published=value)).is_published is kept


def test_an_explicit_null_is_told_from_silence() -> None:
    optional = ("title_original", "author_name", "status", "cover_url", "summary", "language", "aliases", "genres")
    frame = story_frame(story(deleted=None) | dict.fromkeys(optional))
    assert frame.given == ("title_original", "author_name", "cover_url", "summary")  # what can be empty
    assert all(getattr(frame, name) is None for name in optional)
    assert story_frame(story()).given == ()
    bare = chapter_frame(chapter(source_chapter_id=None, published_at=None, is_published=None, deleted=None))
    assert (bare.source_chapter_id, bare.published_at, bare.is_published) == (None, None, None)


def test_decomposed_vietnamese_is_kept_composed() -> None:
    decomposed = unicodedata.normalize("NFD", "Đấu Phá Thương Khung ậ")
    composed = unicodedata.normalize("NFC", decomposed)
    assert decomposed != composed
    frame = story_frame(story(title=decomposed, aliases=[decomposed, composed], source_story_id=decomposed))
    assert (frame.title, frame.aliases, frame.source_story_id) == (composed, (composed,), composed)
    kept = chapter_frame(chapter(title=decomposed, content_raw=decomposed))
    assert kept.title == composed
    assert kept.content is not None
    assert bodies.decompress(kept.content.stored, "gzip") == composed.encode()


def test_decomposed_text_that_fits_once_it_is_composed_is_taken() -> None:
    def decomposed(number: int) -> str:
        return unicodedata.normalize("NFD", "ấ" * number)

    assert story_frame(story(title=decomposed(255))).title == "ấ" * 255
    assert story_frame(story(aliases=["a", decomposed(255)])).aliases == ("a", "ấ" * 255)
    assert story_frame(story(source_story_id=decomposed(191))).source_story_id == "ấ" * 191
    content = chapter_frame(chapter(content_raw=decomposed(87381))).content
    assert content is not None
    assert content.size == 87381 * 3
    assert refusal(STORY, story(title=decomposed(256))) == ("too_long", "title is longer than 255 characters.")
    assert refusal(STORY, story(aliases=[decomposed(256)]))[0] == "too_long"
    assert refusal(STORY, story(aliases=[decomposed(200)] * 101))[0] == "too_many"


def test_marks_piled_on_a_letter_are_refused_before_they_are_sorted() -> None:
    """To put them in order takes the square of their number: of a whole chapter, many seconds."""
    assert chapter_frame(chapter(title="a" + "\u0300\u0316" * 49)).title == "à" + "\u0316" * 49 + "\u0300" * 48
    for name in ("title", "content_raw", "source_chapter_id"):
        code, message = refusal(CHAPTER, chapter() | {name: "ab" + "\u0300\u0316" * 50})
        assert (code, name in message) == ("invalid_text", True)
    for marks in (65_000, 3_000_000):
        pile = "a" + "\u0300\u0316" * marks
        assert refusal(CHAPTER, chapter(content_raw=pile))[0] in ("invalid_text", "content_too_large")
        assert refusal(CHAPTER, chapter(title=pile))[0] in ("invalid_text", "too_long")


def test_an_item_that_is_not_utf8_spoils_itself_alone() -> None:
    def spoilt(name: str) -> bytes:
        return json.dumps(story(2, **{name: "HERE"})).encode().replace(b"HERE", b"a\xff")

    for name, code in (("title", "invalid_text"), ("slug", "invalid_slug"), ("updated_at_source", "invalid_datetime")):
        checked = check(STORY, story(1), spoilt(name), story(3))
        assert [(error.index, error.code) for error in checked.errors] == [(1, code)]
        assert name in checked.errors[0].message
        assert checked.accepted == 2
    in_a_name = spoilt("title").replace(b'"title"', b'"t\xc3tle"')
    assert [error.code for error in check(STORY, story(1), in_a_name).errors] == ["invalid_text"]
    behind_another_fault = json.dumps(story(aliases=["a" * 256, "HERE"])).encode().replace(b"HERE", b"\xff")
    assert refusal(STORY, behind_another_fault)[0] == "too_long"


def test_half_a_surrogate_pair_spoils_its_own_item_alone() -> None:
    checked = check(
        STORY, story(1, title="😀 \\ud800"), story(2, title=HALF_PAIR), story(3, summary="x\udfff"), story(4)
    )
    assert [(error.index, error.code) for error in checked.errors] == [(1, "invalid_text"), (2, "invalid_text")]
    kept = frames(checked)
    assert [getattr(frame, "title", None) for frame in kept] == ["😀 \\ud800", "Truyện 4"]
