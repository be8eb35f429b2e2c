"""What the queue carries: frames that come out as they went in, in blobs of a bounded size."""

import itertools
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import payloads
from store.payloads import ChapterFrame, Content, Item, StoryFrame

TEXT = st.text(max_size=30)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59), timezones=st.just(UTC))
NUMBERS = st.integers(0, 9_999_999_999).map(lambda number: Decimal(number).scaleb(-2))


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


STORIES = st.builds(
    StoryFrame,
    source_story_id=TEXT,
    updated_at_source=TIMES,
    deleted=st.booleans(),
    slug=TEXT,
    title=TEXT,
    title_original=maybe(TEXT),
    author_name=maybe(TEXT),
    status=maybe(st.integers(0, 4)),
    cover_url=maybe(TEXT),
    summary=maybe(TEXT),
    language=maybe(TEXT),
    aliases=maybe(st.lists(TEXT).map(tuple)),
    genres=maybe(st.lists(TEXT).map(tuple)),
    given=st.lists(TEXT).map(tuple),
)
CHAPTERS = st.builds(
    ChapterFrame,
    source_story_id=TEXT,
    updated_at_source=TIMES,
    source_chapter_id=maybe(TEXT),
    chapter_no=maybe(NUMBERS),
    deleted=st.booleans(),
    slug=TEXT,
    title=TEXT,
    published_at=maybe(TIMES),
    is_published=maybe(st.booleans()),
    content=maybe(st.builds(Content, st.binary(), TEXT, st.binary(), st.integers(0, 1 << 40))),
)


def item(index: int, size: int) -> Item:
    return Item(index, f"ref{index}", bytes(32), bytes([index % 256]) * size)


@settings(derandomize=True, deadline=None)
@given(STORIES | CHAPTERS)
def test_a_frame_comes_out_as_it_went_in(frame: StoryFrame | ChapterFrame) -> None:
    encoded = payloads.encode(frame)
    decoded = payloads.decode(encoded)
    assert decoded == frame
    assert type(decoded) is type(frame)
    assert payloads.encode(decoded) == encoded
    if isinstance(decoded, ChapterFrame):
        assert str(decoded.chapter_no) == str(frame.chapter_no)  # type: ignore[union-attr]


@settings(derandomize=True, deadline=None)
@given(STORIES | CHAPTERS, st.data())
def test_a_frame_that_is_cut_short_is_not_taken_for_a_whole_one(
    frame: StoryFrame | ChapterFrame, data: st.DataObject
) -> None:
    encoded = payloads.encode(frame)
    length = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(msgspec.DecodeError):
        payloads.decode(encoded[:length])


@settings(derandomize=True, deadline=None)
@given(STORIES | CHAPTERS)
def test_a_frame_of_an_older_door_is_read_with_the_defaults_of_what_it_lacks(frame: StoryFrame | ChapterFrame) -> None:
    fields = msgspec.msgpack.decode(payloads.encode(frame))
    older = payloads.decode(msgspec.msgpack.encode(fields[:3]))
    assert (older.source_story_id, older.updated_at_source) == (frame.source_story_id, frame.updated_at_source)
    assert (older.title, older.slug, older.deleted) == ("", "", False)


def test_a_frame_of_a_newer_door_is_read_as_far_as_it_is_known() -> None:
    frame = StoryFrame(source_story_id="s1", updated_at_source=datetime(2026, 1, 1, tzinfo=UTC), title="A")
    fields = msgspec.msgpack.decode(payloads.encode(frame))
    assert payloads.decode(msgspec.msgpack.encode([*fields, "more"])) == frame


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 100))
def test_items_are_put_in_order_into_blobs_of_a_bounded_size(sizes: list[int], max_bytes: int) -> None:
    items = [item(index, size) for index, size in enumerate(sizes)]
    blobs = payloads.blobs(items, max_bytes=max_bytes)
    assert [item for blob in blobs for item in blob.items] == items
    for blob in blobs:
        assert blob.size_bytes == len(blob.content) == sum(len(item.frame) for item in blob.items)
        assert blob.size_bytes <= max_bytes or len(blob.items) == 1
    for blob, following in itertools.pairwise(blobs):
        assert blob.size_bytes + len(following.items[0].frame) > max_bytes, "no blob ends before it must"


def test_what_just_fits_is_one_blob() -> None:
    assert len(payloads.blobs([item(0, 60), item(1, 40)], max_bytes=100)) == 1
    assert len(payloads.blobs([item(0, 60), item(1, 41)], max_bytes=100)) == 2
    assert payloads.blobs([]) == []
