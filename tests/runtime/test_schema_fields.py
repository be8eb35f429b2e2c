"""A schema as rows for people: names, types, limits, and an example that the type itself takes."""

from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta, Raw, Struct

from runtime.openapi import either
from runtime.schema_fields import Field, NoExample, SchemaFields
from tests.runtime import sample_api


class Shelf(Enum):
    READING = "reading"
    DROPPED = "dropped"


class Place(Struct):
    """Where a reader is."""

    chapter: Annotated[int, Meta(ge=1, examples=[12])]


class Row(Struct):
    """A reader's row."""

    place: Place
    marked: Annotated[Place, Meta(description="The bookmark")]
    other: Place | None
    by_story: dict[str, Place]
    history: list[list[Place]]


def read(kind: Any, *others: type[Struct]) -> tuple[SchemaFields, dict[str, Any]]:
    (schema, *_), components = msgspec.json.schema_components(
        [kind, *others], ref_template="#/components/schemas/{name}"
    )
    return SchemaFields(components), schema


def fields(kind: Any, *others: type[Struct]) -> list[Field]:
    reader, schema = read(kind, *others)
    return list(reader.of(schema))


def value(kind: Any) -> Field:
    reader, schema = read(kind)
    return reader.named("value", schema, required=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (str, "string"),
        (UUID, "string, uuid"),
        (int | None, "integer or null"),
        (list[str], "list of string"),
        (list[Place], "list of Place"),
        (dict[str, int], "map of integer"),
        (dict[str, Any], "object"),
        (tuple[int, str], "array"),
        (Literal["a", 1], "integer or string"),
        (Shelf, "string"),
        (Place | None, "Place or null"),
        (Any, "anything"),
        (Annotated[Raw, either(Place, Row)], "Place or Row"),
    ],
)
def test_a_type_is_named_in_words(kind: Any, name: str) -> None:
    reader, schema = read(kind, Place, Row)
    assert reader.type(schema) == name


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (Annotated[str, Meta(min_length=1, max_length=9)], [("length", "1 – 9")]),
        (Annotated[str, Meta(min_length=2, max_length=2)], [("length", "2")]),
        (Annotated[str, Meta(max_length=9)] | None, [("length", "≤ 9")]),
        (Annotated[str, Meta(pattern="^a$")], [("pattern", "^a$")]),
        (Annotated[int, Meta(ge=0)], [("range", "≥ 0")]),
        (
            Annotated[float, Meta(gt=0, lt=1, multiple_of=0.5)],
            [("more than", "0"), ("less than", "1"), ("multiple of", "0.5")],
        ),
        (Annotated[list[int], Meta(min_length=1, max_length=3)], [("items", "1 – 3")]),
        (list[Annotated[str, Meta(min_length=1)]], [("each length", "≥ 1")]),
        (Shelf, [("one of", '"dropped", "reading"')]),
        (Literal[True], [("always", "true")]),
        (Annotated[int, Meta(extra_json_schema={"default": 20})], [("default", "20")]),
        (Annotated[int, Meta(ge=0, le=5)] | Annotated[float, Meta(ge=0, le=5)], [("range", "0 – 5")]),
        (list[Place], []),
        (str, []),
    ],
)
def test_the_limits_of_a_value_are_told(kind: Any, rules: list[tuple[str, str]]) -> None:
    assert list(value(kind).rules) == rules


def test_a_null_by_default_is_no_news_and_any_other_default_is() -> None:
    kind = msgspec.defstruct("Kind", [("a", str | None, None), ("b", str | None, "x"), ("c", bool, False)])
    assert [field.rules for field in fields(kind)] == [(), (("default", '"x"'),), (("default", "false"),)]


def test_fields_are_named_by_the_whole_way_to_them() -> None:
    assert [field.within + field.name for field in fields(Row)] == [
        "place",
        "place.chapter",
        "marked",
        "marked.chapter",
        "other",
        "other.chapter",
        "by_story",
        "by_story.*.chapter",
        "history",
        "history[][].chapter",
    ]


def test_a_field_without_words_of_its_own_is_described_by_what_it_holds() -> None:
    described = {field.name: field.description for field in fields(Row) if not field.within}
    assert described == {
        "place": "Where a reader is.",
        "marked": "The bookmark",
        "other": "Where a reader is.",
        "by_story": "Where a reader is.",
        "history": "Where a reader is.",
    }


def test_a_list_at_the_top_has_the_fields_of_its_items() -> None:
    assert [field.within + field.name for field in fields(list[Place])] == ["[].chapter"]


def test_what_is_required_and_what_is_not() -> None:
    required = {field.name: field.required for field in fields(sample_api.Story)}
    assert [name for name, is_required in required.items() if is_required] == ["id", "slug", "title", "updated_at"]


def test_a_value_of_several_types_has_a_head_for_each() -> None:
    found = fields(sample_api.Batch, sample_api.Story, sample_api.Deletion)
    heads = [(field.name, field.type) for field in found if field.is_alternative]
    assert heads == [("items[]", "Story"), ("items[]", "Deletion")]
    after_deletion = found[[field.type for field in found].index("Deletion") + 1 :]
    assert [field.within + field.name for field in after_deletion] == [
        "items[].id",
        "items[].updated_at",
        "items[].deleted",
    ]


def test_a_type_that_holds_itself_is_listed_once() -> None:
    assert [field.within + field.name for field in fields(sample_api.Comments)] == [
        "items",
        "items[].text",
        "items[].likes",
        "items[].replies",
        "next_cursor",
    ]


def test_an_example_is_made_from_those_of_the_parts_and_decodes() -> None:
    reader, schema = read(sample_api.Batch, sample_api.Story, sample_api.Deletion)
    example = reader.example(schema)
    assert example == {
        "source": "source-a",
        "items": [
            {
                "id": "abc123",
                "slug": "dau-pha-thuong-khung",
                "title": "Đấu Phá Thương Khung",
                "updated_at": "2026-02-21T08:00:00Z",
                "genres": ["Tiên hiệp"],
            }
        ],
    }
    msgspec.convert(example["items"][0], sample_api.Story)


class Endless(Struct):
    inner: "list[Endless]"


@pytest.mark.parametrize("kind", [sample_api.Accepted, sample_api.Comments, Endless, str, dict[str, int]])
def test_there_is_no_example_when_a_required_part_has_none(kind: Any) -> None:
    reader, schema = read(kind)
    with pytest.raises(NoExample):
        reader.example(schema)
