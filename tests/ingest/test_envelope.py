"""The outer form of a batch: what is wrong with it is said at once, and costs next to nothing."""

import json
import tracemalloc
import unicodedata
from typing import Any

import pytest

from ingest import batch, envelope
from ingest.errors import InvalidRequest, InvalidSchema
from runtime.errors import ApiError
from tests.ingest.checked import NOW, STORY, body, check, check_body, frames
from tests.ingest.client import story

MIB = 1 << 20


def refused(raw: bytes) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as refusal:
        envelope.read(raw)
    return refusal.value.status, refusal.value.code, refusal.value.message


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b" ", b"{", b'{"source":', b'{"source": "a", "items": [{}]', b'{"source": "a", "items": [{}]}}'),
        *(b"source=a&items=1", b"\x1f\x8b\x08", b"\0", b"{'source': 'a'}", b'{"source": "a", "items": [{},]}'),
        *(b'{"source": "a", "items": [NaN]}', b'{"source": "a", "items": [Infinity]}', b'{"items": [-Infinity]}'),
        *(b'{"source": "a", "items": [nul]}', b'{"source": "a", "items": [01]}', b'{"source": "a\n"}', b'{"a": "\\x"}'),
        *(b'{"\xff": 1}', b'{"source": "a", "items": ["\\ud8zz"]}', b'{"source": "a", "items": ["\\ud800'),
        json.dumps({"source": "a", "items": [{}]}).encode("utf-16"),
        json.dumps({"source": "a", "items": [{}]}).encode("utf-16-le"),
        json.dumps({"source": "a", "items": [{}]}).encode("utf-32"),
        json.dumps({"source": "a", "items": [{}]}).encode("utf-8-sig"),
        *(b"[" * 100_000, b'{"source": "a", "items": ' + b"[" * 100_000, b'{"a":' * 100_000),
        *(b"[" * 100_000 + b"]" * 100_000, b'{"source": "a", "items": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_what_is_not_json_is_a_bad_request(raw: bytes) -> None:
    status, code, message = refused(raw)
    # A body that ends before it could become too deep is merely no object.
    assert (status, code) in ((400, "invalid_schema"), (422, "invalid_schema"))
    assert len(message) < 200
    if not raw.startswith(b"["):
        assert status == 400


@pytest.mark.parametrize("raw", [b"[]", b'"a"', b"1", b"1.5", b"null", b"true", b"[{}]", b"1e999"])
def test_a_batch_is_an_object(raw: bytes) -> None:
    assert refused(raw) == (422, "invalid_schema", "The body must be a JSON object.")


def test_source_and_items_are_required() -> None:
    assert refused(b"{}") == (422, "invalid_schema", "source is missing.")
    assert refused(b'{"items": [{}]}') == (422, "invalid_schema", "source is missing.")
    assert refused(b'{"source": "a"}') == (422, "invalid_schema", "items is missing.")


@pytest.mark.parametrize(
    "source",
    [
        *(None, 1, True, [], {}, "", " ", " a", "a ", "a/b", "/", ".", "..", "a\n", "\na", "a\tb", "a\0", "\x7f"),
        *("a" * 41, "ấ" * 41, "\u0958" * 21, "\ud800", "a\u0300" + "\u0300\u0316" * 60, "a" * 100_000),
    ],
)
def test_a_source_is_a_short_name_that_can_stand_in_an_address(source: Any) -> None:
    status, code, message = refused(body({}, source=source))
    assert (status, code) == (422, "invalid_schema")
    assert message.startswith("source must be")


def test_a_source_that_is_not_utf8_is_refused() -> None:
    assert refused(b'{"source": "\xff", "items": [{}]}')[:2] == (422, "invalid_schema")


@pytest.mark.parametrize(
    "source", ["a", "a" * 40, "ấ" * 40, "truyen-a", "Truyện A", "...", "a.b", "\u0958" * 20, "#?%"]
)
def test_a_source_is_kept_composed(source: str) -> None:
    for form in ("NFC", "NFD"):
        given = unicodedata.normalize("NFD", source) if form == "NFD" else source
        assert envelope.read(body({}, source=given)).source == unicodedata.normalize("NFC", source)


@pytest.mark.parametrize("items", [None, 1, "a", {}, True, {"0": {}}])
def test_items_is_an_array(items: Any) -> None:
    raw = json.dumps({"source": "a", "items": items}).encode()
    assert refused(raw) == (422, "invalid_schema", "items must be an array.")


def test_a_batch_has_one_to_three_hundred_items() -> None:
    assert refused(body())[:2] == (422, "invalid_schema")
    assert len(envelope.read(body(*[{}] * 300)).items) == 300
    assert "300" in refused(body(*[{}] * 301))[2]


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    raw = b'{"source": 1, "items": 2, "source": "first", "source": "last", "items": [{}, {}]}'
    opened = envelope.read(raw)
    assert (opened.source, len(opened.items)) == ("last", 2)
    twice = json.dumps(story()).encode()[:-1] + b', "title": 1, "title": "Last"}'
    (frame,) = frames(check(STORY, twice))
    assert getattr(frame, "title", None) == "Last"


def test_names_may_be_written_with_escapes() -> None:
    assert envelope.read(b'{"s\\u006furce": "a", "items": [{}]}').source == "a"


def test_unknown_names_are_noted() -> None:
    assert envelope.read(body({}, sent_by="crawler")).unknown_field == "sent_by"
    assert envelope.read(body({})).unknown_field is None


@pytest.mark.parametrize("half", [rb"\ud800", rb"\udfff", rb"\uD8aF", rb"\udc00\ud800", rb"\ud800\n", rb"\ud800\ud800"])
def test_half_a_surrogate_pair_is_an_item_s_own_fault_wherever_it_stands(half: bytes) -> None:
    good, bad = story(1), json.dumps(story(2, author_name="HERE")).encode()
    for place in (b"HERE", b"HERE x", b"x HERE"):
        for spoilt in (bad.replace(b"HERE", place.replace(b"HERE", half)), bad.replace(b"s2", half)):
            for items, index in (((good, spoilt), 1), ((spoilt, good), 0)):
                checked = check(STORY, *items)
                assert [(error.index, error.code) for error in checked.errors] == [(index, "invalid_text")]
                assert len(frames(checked)) == 1


def test_half_a_surrogate_pair_in_a_name_is_a_name_we_do_not_know() -> None:
    checked = check(STORY, json.dumps(story()).encode()[:-1] + rb', "\ud800": 1}')
    assert checked.accepted == 1
    assert [warning.code for warning in checked.warnings] == ["unknown_field"]


@pytest.mark.parametrize(
    "text", [rb"\ud83d\ude00", rb"\\ud800", rb"\\\\ud800", rb"\ud83d\ude00" * 3000, rb"\\\ud83d\ude00"]
)
def test_what_only_looks_like_half_a_pair_is_left_alone(text: bytes) -> None:
    neighbour = story(2, title="\ud800")
    item = json.dumps(story(1, summary="HERE")).encode().replace(b"HERE", text)
    (frame,) = frames(check(STORY, item, neighbour))
    assert getattr(frame, "summary", None) == json.loads(b'"' + text + b'"')


def test_an_escape_that_is_none_is_not_made_into_one() -> None:
    for text in (rb"\ud8zz", rb"\ud8", rb"\u", rb"\ud800\x", rb"\q"):
        item = json.dumps(story(title="HERE")).encode().replace(b"HERE", text)
        with pytest.raises(InvalidRequest):
            check(STORY, item, story(2, title="\ud800"))


def test_an_item_too_deep_for_the_stack_it_is_read_on_is_refused_alone() -> None:
    """The items are read later than the envelope, and from another place, which may have less room."""
    nested = b"[" * 650 + b"]" * 650
    opened = envelope.read(body(story(1), json.dumps(story(2)).encode()[:-1] + b', "x": ' + nested + b"}"))

    def check_from(level: int) -> list[tuple[int, str]]:
        if level:
            return check_from(level - 1)
        return [(error.index, error.code) for error in batch.check(opened, STORY, now=NOW).errors]

    assert check_from(0) == []
    for level in range(0, 300, 5):  # some of these have room for the item, and some have not
        assert check_from(level) in ([], [(1, "invalid_type")])


@pytest.mark.parametrize(
    "items",
    [
        b"[" + b"1," * 3_000_000 + b"1]",
        b"[" + b"[]," * 2_000_000 + b"1]",
        b'[{"title": [' + b"1," * 3_000_000 + b"1]}]",
        b'[{"aliases": ["' + b"a" * 256 + b'", ' + b"1," * 3_000_000 + b"1]}]",
        b"[{" + b",".join(b'"%d": 0' % number for number in range(500_000)) + b"}]",
    ],
    ids=["numbers", "lists", "numbers-in-a-field", "numbers-behind-a-fault", "names"],
)
def test_millions_of_values_cost_no_objects(items: bytes) -> None:
    raw = b'{"source": "a", "items": ' + items + b"}"
    tracemalloc.start()
    try:
        try:
            checked = check_body(raw, STORY)
        except InvalidSchema as error:
            assert "300" in error.message  # noqa: PT017  some are refused here, others below
        else:
            assert [error.index for error in checked.errors] == [0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB
