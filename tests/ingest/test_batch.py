"""A batch as a whole: what is taken of it, once, and what is said about the rest."""

import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from ingest import batch, chapters
from store.payloads import MAX_BLOB_BYTES, ChapterFrame, Item
from tests.ingest.checked import (
    CHAPTER,
    NOW,
    STORY,
    body,
    chapter_frame,
    check,
    check_body,
    frames,
    refusal,
    story_frame,
)
from tests.ingest.client import chapter, story

EARLY, LATE = "2026-02-21T08:00:00Z", "2026-02-21T08:00:01Z"


def items(checked: batch.Checked) -> list[Item]:
    return [item for blob, _ in checked.blobs for item in blob.items]


def test_what_is_accepted_and_what_is_not_add_up_and_keep_their_places() -> None:
    checked = check(STORY, story(1), story(2, slug="X"), story(3), 5, story(4))
    assert (checked.total, checked.accepted) == (5, 3)
    assert [(error.index, error.code) for error in checked.errors] == [(1, "invalid_slug"), (3, "invalid_type")]
    assert [(item.index, item.external_ref) for item in items(checked)] == [(0, "s1"), (2, "s3"), (4, "s4")]


def test_a_batch_of_which_nothing_is_acceptable_has_nothing_to_write() -> None:
    checked = check(CHAPTER, {}, 1, None)
    assert (checked.accepted, checked.blobs, [error.index for error in checked.errors]) == (0, [], [0, 1, 2])


@pytest.mark.parametrize(
    ("times", "winner"),
    [
        ((EARLY, LATE), 1),
        ((LATE, EARLY), 0),
        ((EARLY, EARLY), 1),
        ((EARLY, LATE, EARLY), 1),
        ((LATE, EARLY, LATE), 2),
        (("2026-02-21T15:00:00+07:00", "2026-02-21T07:59:59Z"), 0),
        (("2026-02-21T08:00:00.000001Z", EARLY), 0),
    ],
)
@pytest.mark.parametrize(("kind", "make"), [(STORY, story), (CHAPTER, chapter)])
def test_of_the_same_item_twice_the_later_one_is_taken_and_the_answer_says_so(
    kind: batch.Kind, make: Any, times: tuple[str, ...], winner: int
) -> None:
    checked = check(kind, *(make(1, updated_at_source=time, title=f"T{n}") for n, time in enumerate(times)), make(9))
    losers = sorted(set(range(len(times))) - {winner})
    assert [(error.index, error.code) for error in checked.errors] == [(index, "duplicate_item") for index in losers]
    assert [item.index for item in items(checked)] == [winner, len(times)]
    assert frames(checked)[0].title == f"T{winner}"
    for error in checked.errors:
        assert error.message.startswith("Items ")
        assert str(error.index) in error.message


def test_the_answer_says_why_an_item_won() -> None:
    (later,) = check(STORY, story(updated_at_source=LATE), story(updated_at_source=EARLY)).errors
    assert later.message == "Items 1 and 0 are the same: 0 was taken, because it has the later updated_at_source."
    (equal,) = check(STORY, story(), story()).errors
    assert equal.message == "Items 0 and 1 are the same: 1 was taken, because it comes later."


def test_an_invalid_item_takes_nothing_from_a_valid_one_with_the_same_identity() -> None:
    checked = check(STORY, story(title=""), story(), story(updated_at_source=LATE, status=9))
    assert [error.code for error in checked.errors] == ["empty", "out_of_range"]
    assert [item.index for item in items(checked)] == [1]


def test_the_same_identity_in_another_form_of_unicode_is_the_same() -> None:
    checked = check(STORY, story(source_story_id="a\u0301"), story(source_story_id="á"), story(source_story_id="a"))
    assert [error.code for error in checked.errors] == ["duplicate_item"]
    checked = check(
        CHAPTER, chapter(source_chapter_id=None, chapter_no=1), chapter(source_chapter_id=None, chapter_no=1.0)
    )
    assert [error.code for error in checked.errors] == ["duplicate_item"]


def test_a_deleted_story_needs_no_more_than_its_identity() -> None:
    deletion = {"source_story_id": "s1", "updated_at_source": EARLY, "deleted": True}
    frame = story_frame(deletion)
    assert (frame.deleted, frame.source_story_id, frame.slug, frame.given) == (True, "s1", "", ())
    assert frame == story_frame(story(title=5, slug="NOT CHECKED", deleted=True, updated_at_source=EARLY))
    assert refusal(STORY, {"deleted": True, "updated_at_source": EARLY}) == (
        "missing_field",
        "source_story_id is required.",
    )
    assert refusal(STORY, {"deleted": True, "source_story_id": "a"})[1] == "updated_at_source is required."
    assert refusal(STORY, deletion | {"deleted": False})[0] == "invalid_slug"


def test_a_deleted_chapter_is_named_by_its_id_or_its_number() -> None:
    deletion = {"source_story_id": "s1", "updated_at_source": EARLY, "deleted": True}
    by_id = chapter_frame(deletion | {"source_chapter_id": "c1"})
    assert (by_id.deleted, by_id.source_chapter_id, by_id.chapter_no, by_id.content) == (True, "c1", None, None)
    by_number = chapter_frame(deletion | {"chapter_no": 12.5})
    assert (by_number.deleted, by_number.source_chapter_id, by_number.chapter_no) == (True, None, Decimal("12.50"))
    for nothing in ({}, {"source_chapter_id": None}, {"chapter_no": None}):
        code, message = refusal(CHAPTER, deletion | nothing)
        assert (code, "source_chapter_id or chapter_no" in message) == ("missing_field", True)
    assert refusal(CHAPTER, deletion | {"chapter_no": 1.234})[0] == "invalid_chapter_no"
    assert refusal(CHAPTER, deletion | {"chapter_no": "1"})[0] == "invalid_type"


def test_an_update_and_a_deletion_of_one_chapter_are_the_same_item() -> None:
    deletion = {"source_story_id": "s1", "source_chapter_id": "c1", "updated_at_source": "2026-02-22T00:00:00Z"}
    checked = check(CHAPTER, deletion | {"deleted": True}, chapter(1))
    assert [(error.index, error.code) for error in checked.errors] == [(1, "duplicate_item")]
    assert frames(checked)[0].deleted


def test_unknown_fields_are_taken_and_warned_of_once() -> None:
    checked = check(STORY, story(1, colour="red"), story(2, colour="blue"), story(3, slug="X", weight=1), batch_no=7)
    assert checked.accepted == 2
    (warning,) = checked.warnings
    assert warning.code == "unknown_field"
    assert warning.message == "Fields that are not known here were ignored: batch_no, colour, weight."
    assert check(STORY, story()).warnings == []


def test_a_warning_stays_short_whatever_the_names_are() -> None:
    checked = check(STORY, *(story(number, **{f"{number:03}" + "x" * 10_000: 1}) for number in range(300)))
    (warning,) = checked.warnings
    assert len(warning.message) < 1000
    assert "290 more" in warning.message


def test_a_time_far_ahead_is_taken_and_warned_of() -> None:
    ahead, soon = story(1, updated_at_source="2026-03-03T00:00:00Z"), story(2, updated_at_source="2026-03-01T23:00:00Z")
    checked = check_body(body(ahead, soon), STORY, now=datetime(2026, 3, 1, tzinfo=UTC))
    assert checked.accepted == 2
    assert [warning.code for warning in checked.warnings] == ["future_timestamp"]


def test_equal_items_have_equal_hashes_however_their_content_is_compressed() -> None:
    hashes = set()
    for encoding in ("gzip", "zstd", "none"):
        kind = batch.chapters_kind(content_encoding=encoding)
        (item,) = items(check(kind, chapter(content_raw="Nội dung " * 500)))
        hashes.add(item.payload_sha256)
    assert len(hashes) == 1
    for other in (
        chapter(content_raw="Khác"),
        chapter(title="Khác"),
        chapter(updated_at_source=LATE),
        chapter(is_published=1),
    ):
        (item,) = items(check(CHAPTER, other))
        hashes.add(item.payload_sha256)
    assert len(hashes) == 5


def test_a_large_batch_becomes_several_blobs_each_with_its_hash() -> None:
    kind = batch.chapters_kind(content_encoding="none")
    checked = check(kind, *(chapter(number, content_raw=f"{number:02}" * 100_000) for number in range(47)))
    assert checked.accepted == 47
    assert len(checked.blobs) > 1
    for blob, sha256 in checked.blobs:
        assert blob.size_bytes == len(blob.content) <= MAX_BLOB_BYTES
        assert hashlib.sha256(blob.content).digest() == sha256
    assert [item.index for item in items(checked)] == list(range(47))


def _chapter(story_id: str, chapter_id: str | None, number: Decimal) -> ChapterFrame:
    return ChapterFrame(
        source_story_id=story_id, source_chapter_id=chapter_id, chapter_no=number, updated_at_source=NOW
    )


# Short and long, and made of what separates the parts of a name.
_IDS = st.text("a%/#~2F5Đ", min_size=1, max_size=8) | st.text("a%/#", min_size=170, max_size=191)
_CHAPTERS = st.builds(
    _chapter, _IDS, st.none() | _IDS, st.integers(0, 9_999_999_999).map(lambda n: Decimal(n).scaleb(-2))
)
_LONG = _chapter("a" * 100, "b" * 191, Decimal("1.00"))
_ITS_NAME = chapters.external_ref(_LONG).partition("/")[2]


def _identity(frame: ChapterFrame) -> tuple[str, str | None, Decimal | None]:
    return frame.source_story_id, frame.source_chapter_id, None if frame.source_chapter_id else frame.chapter_no


@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(_CHAPTERS, _CHAPTERS)
@example(_chapter("a/b", "c", Decimal("1.00")), _chapter("a", "b/c", Decimal("1.00")))
@example(_chapter("a", "1.00", Decimal("1.00")), _chapter("a", None, Decimal("1.00")))
@example(_chapter("a#1.00", "b", Decimal("1.00")), _chapter("a", None, Decimal("1.00")))
@example(_chapter("a%2Fb", "c", Decimal("1.00")), _chapter("a/b", "c", Decimal("1.00")))
@example(_chapter("a" * 191, "b" * 191, Decimal("1.00")), _chapter("a" * 191, "b" * 190, Decimal("1.00")))
@example(_LONG, _chapter("a" * 100, _ITS_NAME, Decimal("1.00")))
def test_different_chapters_have_different_names(one: ChapterFrame, other: ChapterFrame) -> None:
    refs = [chapters.external_ref(one), chapters.external_ref(other)]
    assert all(1 <= len(ref) <= 191 for ref in refs)
    assume(_identity(one) != _identity(other))
    assert refs[0] != refs[1]


def test_a_chapter_s_name_is_readable() -> None:
    assert chapters.external_ref(_chapter("abc", "c1", Decimal("1.00"))) == "abc/c1"
    assert chapters.external_ref(_chapter("abc", None, Decimal("12.50"))) == "abc#12.50"
