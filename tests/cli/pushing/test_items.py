from typing import Any

import orjson
import pytest

from cli.pushing import items
from cli.pushing.items import CHAPTERS, STORIES, Item, Rejection, Route, Skip
from cli.pushing.lines import Line


def read(data: dict[str, Any], *, source: str | None = "a") -> Item:
    item = items.from_line(Line("file:1", data), source=source)
    assert isinstance(item, Item)
    return item


@pytest.mark.parametrize(
    ("data", "route"),
    [
        ({"source_story_id": "s", "title": "T"}, STORIES),
        ({"source_story_id": "s", "deleted": True}, STORIES),
        ({"source_story_id": "s", "chapter_no": 1}, CHAPTERS),
        ({"source_story_id": "s", "content_raw": "x"}, CHAPTERS),
        ({"source_story_id": "s", "chapter_no": 1, "deleted": True}, CHAPTERS),
        ({"source_story_id": "s", "source_chapter_id": "c", "deleted": True}, CHAPTERS),
    ],
)
def test_a_line_is_a_chapter_if_it_has_a_field_of_chapters(data: dict[str, Any], route: Route) -> None:
    assert read(data).route is route


def test_the_source_of_a_line_goes_before_the_default_and_is_no_field_of_the_item() -> None:
    item = read({"source": "b", "source_story_id": "s"}, source="a")
    assert item.source == "b"
    assert orjson.loads(item.encoded) == {"source_story_id": "s"}
    assert read({"source_story_id": "s"}, source="a").source == "a"
    assert read({"source": None, "source_story_id": "s"}, source="a").source == "a"


@pytest.mark.parametrize("data", [{}, {"source": ""}, {"source": 7}])
def test_a_line_without_a_source_is_rejected(data: dict[str, Any]) -> None:
    found = items.from_line(Line("file:1", data), source=None)
    assert isinstance(found, Rejection)
    assert (found.place, found.code) == ("file:1", "missing_field")


def test_numbers_and_text_stay_what_they_are() -> None:
    item = read({"chapter_no": 12.25, "title": "Đấu", "is_published": True, "n": 12345678901})
    assert item.encoded == '{"chapter_no":12.25,"title":"Đấu","is_published":true,"n":12345678901}'.encode()


def test_an_item_that_no_batch_can_hold_is_rejected_and_one_that_just_fits_is_not() -> None:
    room = CHAPTERS.max_body_bytes - len(items.envelope("a", [b'{"content_raw":""}']))
    read({"content_raw": "x" * room})
    found = items.from_line(Line("file:1", {"content_raw": "x" * (room + 1)}), source="a")
    assert isinstance(found, Rejection)
    assert found.code == "payload_too_large"


def test_what_cannot_be_read_is_rejected_and_what_was_left_out_is_skipped() -> None:
    assert items.from_line(Line("f:1", problem="not JSON"), source="a") == Rejection("f:1", "invalid_line", "not JSON")
    assert items.from_line(Line("f", skipped="no text"), source="a") == Skip("f", "no text")
