"""The document is valid OpenAPI 3.1, and says of requests, answers and errors what is true of them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import jsonschema_rs
import msgspec
import pytest
import schemathesis
from msgspec import Raw, Struct
from schemathesis.core.result import Ok

from runtime import errors, openapi
from runtime.errors import ApiError, NotFound
from runtime.openapi import Answer, Operation, Parameter, either
from tests.conftest import ROOT
from tests.runtime import sample_api
from tests.runtime.sample_api import DELETE_STORY, GET_COMMENTS, POST_BATCH, Batch, Deletion, Story, sample

BULK = "/api/v1/stories/bulk"
STORY = {"id": "a", "slug": "a-b", "title": "A", "updated_at": "2026-02-21T08:00:00Z"}


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from nodes(value)


def validator(document: dict[str, Any], schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Judges values by a schema of the document."""
    return jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]}, validate_formats=True)


def answer_schema(document: dict[str, Any], status: int) -> Any:
    return document["paths"][BULK]["post"]["responses"][str(status)]["content"]["application/json"]["schema"]


# -- the whole -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operations", [sample_api.OPERATIONS, [DELETE_STORY]], ids=["all", "one"])
def test_the_document_is_valid_by_the_official_schema(operations: list[Operation]) -> None:
    document = sample(*operations)
    assert document["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(document).validate()


def test_a_document_without_operations_is_valid() -> None:
    document = openapi.document([], title="Empty", version="1")
    schemathesis.openapi.from_dict(document).validate()
    assert document["info"] == {"title": "Empty", "version": "1"}
    assert "servers" not in document


def test_the_official_schema_sees_what_is_wrong() -> None:
    document = sample()
    document["paths"][BULK]["post"]["parameters"][0]["in"] = "body"
    with pytest.raises(jsonschema_rs.ValidationError):
        schemathesis.openapi.from_dict(document).validate()


def test_every_operation_can_be_loaded_by_a_program() -> None:
    results = schemathesis.openapi.from_dict(sample()).get_all_operations()
    loaded = [result.ok() for result in results if isinstance(result, Ok)]
    assert [(operation.method, operation.path) for operation in loaded] == [
        ("post", BULK),
        ("get", "/api/v1/stories/{id}/comments"),
        ("delete", "/api/v1/stories/{id}"),
    ]


def test_every_reference_leads_somewhere() -> None:
    document = sample()
    references = {node["$ref"] for node in nodes(document) if "$ref" in node}
    assert references
    assert references <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def test_every_schema_is_valid_and_its_examples_satisfy_it() -> None:
    document = sample()
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    with_examples = [node for node in nodes(document["components"]) if isinstance(node.get("examples"), list)]
    assert len(with_examples) >= 5
    for schema in with_examples:
        for example in schema["examples"]:
            validator(document, schema).validate(example)


def test_the_same_declarations_give_the_same_bytes_in_every_process() -> None:
    program = "import json; from tests.runtime.sample_api import sample; print(json.dumps(sample()))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert printed == {json.dumps(sample())}


def test_what_was_told_about_the_api_is_there() -> None:
    document = sample()
    assert document["info"] == {"title": "Sample", "version": "1.2.3", "description": "Stories in, `JSON` out."}
    assert document["servers"] == [{"url": "https://novels.example"}]
    assert document["tags"] == [{"name": "Ingest"}, {"name": "Stories"}]
    assert document["components"]["securitySchemes"] == sample_api.SECURITY_SCHEMES


# -- operations ------------------------------------------------------------------------------------------


def test_an_operation_is_described_with_its_parameters_and_its_security() -> None:
    operation = sample()["paths"]["/api/v1/stories/{id}/comments"]["get"]
    assert operation["operationId"] == "getComments"
    assert operation["summary"] == "List the comments on a story"
    assert operation["tags"] == ["Stories"]
    assert operation["parameters"] == [
        {
            "name": "id",
            "in": "path",
            "description": "The story's number",
            "required": True,
            "schema": {"type": "integer", "minimum": 1, "examples": [7]},
        },
        {
            "name": "limit",
            "in": "query",
            "description": "How many",
            "required": False,
            "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        },
    ]
    assert "security" not in operation
    assert "requestBody" not in operation
    assert "description" not in operation


def test_all_schemes_that_an_operation_names_are_needed_together() -> None:
    assert sample()["paths"][BULK]["post"]["security"] == [{"Key": [], "Signature": []}]


def test_several_methods_share_a_path() -> None:
    read = replace(DELETE_STORY, method="GET", name="getStory")
    assert list(sample(DELETE_STORY, read)["paths"]["/api/v1/stories/{id}"]) == ["delete", "get"]


def test_descriptions_do_not_keep_the_indentation_of_the_source() -> None:
    document = sample()
    assert document["components"]["schemas"]["Deletion"]["description"] == (
        "A story that its source has deleted.\n\nA later, newer item brings it back."
    )
    assert document["paths"][BULK]["post"]["description"] == (
        "Takes up to 300 stories. What was accepted is never lost.\n\n"
        "A repeated batch with the same `Idempotency-Key` gets the same answer."
    )


def test_a_body_has_its_content_type_and_the_schema_of_its_type() -> None:
    bodies = sample(replace(POST_BATCH, body_content_type="application/x-batch"))["paths"][BULK]["post"]["requestBody"]
    assert bodies == {
        "required": True,
        "content": {"application/x-batch": {"schema": {"$ref": "#/components/schemas/Batch"}}},
    }


@pytest.mark.parametrize(
    ("changes", "is_good"),
    [
        ({}, True),
        ({"rating": None, "genres": ["x"], "unknown": 1}, True),
        ({"rating": 4.5, "status": 4, "deleted": False}, True),
        ({"slug": "A B"}, False),
        ({"slug": ""}, False),
        ({"title": "x" * 256}, False),
        ({"title": 7}, False),
        ({"status": 5}, False),
        ({"status": None}, False),
        ({"genres": [""]}, False),
        ({"updated_at": "yesterday"}, False),
        ({"deleted": True}, False),
        ({"rating": 0}, False),
    ],
)
def test_the_schema_takes_what_the_type_takes(changes: dict[str, Any], is_good: bool) -> None:
    story = {**STORY, **changes}
    try:
        msgspec.json.decode(json.dumps(story), type=Story)
        decodes = True
    except msgspec.ValidationError:
        decodes = False
    assert decodes is is_good
    document = sample()
    assert validator(document, document["components"]["schemas"]["Story"]).is_valid(story) is is_good


def test_a_raw_item_is_either_of_its_types() -> None:
    document = sample()
    judge = validator(document, {"$ref": "#/components/schemas/Batch"})
    gone = {"id": "a", "updated_at": "2026-02-21T08:00:00Z", "deleted": True}
    assert judge.is_valid({"source": "s", "items": [STORY, gone]})
    assert not judge.is_valid({"source": "s", "items": [{**gone, "deleted": False}]})
    decoded = msgspec.json.decode(json.dumps({"source": "s", "items": [gone]}), type=Batch)
    assert msgspec.json.decode(decoded.items[0], type=Deletion).id == "a"


# -- answers and errors ----------------------------------------------------------------------------------


def test_an_answer_has_its_type_and_headers_and_one_without_a_type_has_no_content() -> None:
    paths = sample()["paths"]
    assert paths[BULK]["post"]["responses"]["202"] == {
        "description": "All items are queued.",
        "headers": {"X-Count": {"description": "How many", "schema": {"type": "string"}}},
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}},
    }
    assert paths["/api/v1/stories/{id}"]["delete"]["responses"]["204"] == {"description": "It is gone."}


def test_errors_are_grouped_by_status_and_named_by_their_codes() -> None:
    responses = sample()["paths"][BULK]["post"]["responses"]
    assert list(responses) == ["202", "401", "422", "429", "500", "503"]
    assert responses["401"]["description"] == "Unauthorized: `invalid_signature`, `key_expired`"
    assert responses["503"]["description"] == "Service Unavailable: `queue_full`, `unavailable`"


def test_every_code_comes_with_its_message_and_the_body_that_is_sent() -> None:
    examples = sample()["paths"][BULK]["post"]["responses"]["401"]["content"]["application/json"]["examples"]
    assert {code: example["summary"] for code, example in examples.items()} == {
        "invalid_signature": "The key is unknown or the signature does not match the request.",
        "key_expired": "The key has expired. Ask the operator for a new one.",
    }
    assert examples["key_expired"]["value"] == json.loads(errors.body(sample_api.KeyExpired()))


def test_errors_that_share_a_code_are_one_with_all_their_messages() -> None:
    examples = sample()["paths"][BULK]["post"]["responses"]["422"]["content"]["application/json"]["examples"]
    assert [example["summary"] for example in examples.values()] == [
        "The body does not have the form that this address takes. `items` must be a list."
    ]


@pytest.mark.parametrize(
    "error",
    [
        sample_api.InvalidSignature(),
        sample_api.KeyExpired("Another message."),
        sample_api.InvalidSchema(details=[{"field": "slug"}]),
        sample_api.RateLimited(retry_after_seconds=3),
        sample_api.QueueFull(),
        errors.InternalError(details={"id": 1}),
    ],
    ids=lambda error: error.code,
)
def test_the_body_of_an_error_is_what_the_document_says_of_its_status(error: ApiError) -> None:
    document = sample()
    body = json.loads(errors.body(error))
    for status in (401, 422, 429, 500, 503):
        assert validator(document, answer_schema(document, status)).is_valid(body) is (status == error.status)


def test_both_shapes_of_an_error_must_be_there() -> None:
    document = sample()
    judge = validator(document, answer_schema(document, 401))
    body = json.loads(errors.body(sample_api.KeyExpired()))
    for name in body:
        assert not judge.is_valid({key: value for key, value in body.items() if key != name})
    assert not judge.is_valid({**body, "code": "invalid_schema"})
    assert not judge.is_valid({**body, "error": {**body["error"], "code": "invalid_schema"}})


def test_a_status_can_be_an_answer_and_an_error() -> None:
    document = sample()
    judge = validator(document, answer_schema(document, 422))
    assert judge.is_valid({"request_id": "r", "accepted_count": 0, "errors": []})
    assert judge.is_valid(json.loads(errors.body(sample_api.InvalidSchema())))
    assert not judge.is_valid({"request_id": "r"})
    described = document["paths"][BULK]["post"]["responses"]["422"]["description"]
    assert described == "No item was acceptable. Or an error: `invalid_schema`."


def test_who_is_told_to_wait_is_told_how_long() -> None:
    responses = sample()["paths"][BULK]["post"]["responses"]
    assert {status for status, response in responses.items() if "Retry-After" in response.get("headers", {})} == {
        "429",
        "503",
    }


# -- declarations that contradict themselves -------------------------------------------------------------


class Nameless(ApiError):
    status, code = 400, "nameless"


class Hidden(Struct):
    a: int


class Holder(Struct):
    item: Annotated[Raw, either(Hidden)]


NUMBER = Parameter(name="id", where="path", description="A number", type=int)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([POST_BATCH, POST_BATCH], "Two operations are called postStories."),
        ([POST_BATCH, replace(POST_BATCH, name="x")], "x declares POST /api/v1/stories/bulk a second time."),
        (
            [DELETE_STORY, replace(DELETE_STORY, name="x", path="/api/v1/stories/{id}")],
            "x declares DELETE /api/v1/stories/{id} a second time.",
        ),
        (
            [
                DELETE_STORY,
                replace(GET_COMMENTS, path="/api/v1/stories/{slug}", parameters=[replace(NUMBER, name="slug")]),
            ],
            "/api/v1/stories/{slug} and /api/v1/stories/{id} are one path to OpenAPI. Use the same names in both.",
        ),
        (
            [replace(DELETE_STORY, parameters=[])],
            "deleteStory: ['id'] must be both in the path and among its parameters.",
        ),
        (
            [replace(POST_BATCH, parameters=[NUMBER])],
            "postStories: ['id'] must be both in the path and among its parameters.",
        ),
        (
            [replace(DELETE_STORY, parameters=[replace(NUMBER, required=False)])],
            "deleteStory: id is a part of the path, and so it is required.",
        ),
        ([replace(DELETE_STORY, answers=[])], "deleteStory has no answer."),
        (
            [replace(DELETE_STORY, answers=[Answer(status=204, description="a"), Answer(status=204, description="b")])],
            "deleteStory has two answers with the same status.",
        ),
        (
            [replace(DELETE_STORY, security=("Login", "Password"))],
            "deleteStory names security schemes that do not exist: ['Password'].",
        ),
        ([replace(DELETE_STORY, errors=[Nameless])], "Nameless needs a docstring: it is the public message."),
        (
            [replace(DELETE_STORY, body=Holder)],
            "Schemas name types that nothing declares: ['#/components/schemas/Hidden']. "
            "List them in an operation's also.",
        ),
        (
            [replace(DELETE_STORY, body=msgspec.defstruct("Error", [("code", int)]))],
            "Another type is called Error too. Give it another name.",
        ),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(operations: list[Operation], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        sample(*operations)


def test_a_type_named_by_either_is_found_when_it_is_listed() -> None:
    document = sample(replace(DELETE_STORY, body=Holder, also=(Hidden,)))
    assert document["components"]["schemas"]["Holder"]["properties"] == {
        "item": {"anyOf": [{"$ref": "#/components/schemas/Hidden"}]}
    }


def test_a_subclass_of_an_error_keeps_the_status_it_does_not_change() -> None:
    class StoryGone(NotFound):
        """This story was deleted."""

        code = "story_gone"

    responses = sample(replace(DELETE_STORY, errors=[StoryGone, NotFound]))["paths"]["/api/v1/stories/{id}"]["delete"]
    assert responses["responses"]["404"]["description"] == "Not Found: `story_gone`, `not_found`"
