"""The OpenAPI 3.1 document of an API, generated from the msgspec types that decode its requests and form its answers.

A service declares its `Operation`s beside its routes; `document` puts those of all services together. msgspec writes
JSON Schema 2020-12, which is what OpenAPI 3.1 takes. A declaration that contradicts itself is a ValueError, so that
it stops the start and not a reader. Headers and parameters get their schemas from types too:
`Parameter(name="limit", where="query", type=Annotated[int, Meta(ge=1, le=100)], ...)`.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from runtime.errors import ApiError

VERSION = "3.1.1"
JSON = "application/json"
ERROR_REF = "#/components/schemas/Error"

_REF_TEMPLATE = "#/components/schemas/{name}"
_PLACEHOLDER = re.compile(r"\{(\w+)(?::\w+)?\}")
# What these statuses always carry; see errors.Unavailable.
_RETRY_AFTER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    where: Literal["header", "path", "query"]
    description: str
    required: bool = True
    type: Any = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is not an error. Without a type it has no body."""

    status: int
    description: str
    type: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """What each header says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    """As the route has it: `/stories/{id:int}`."""
    name: str
    summary: str
    description: str = ""
    tag: str
    parameters: Sequence[Parameter] = ()
    body: Any = None
    body_content_type: str = JSON
    also: Sequence[type[Struct]] = ()
    """Types that the others name with `either`."""
    answers: Sequence[Answer]
    errors: Sequence[type[ApiError]] = ()
    security: tuple[str, ...] = ()
    """Names of the security schemes that a request must satisfy, all of them."""


class ErrorText(Struct):
    code: Annotated[str, Meta(description="For programs: it stays the same whatever the message says")]
    message: Annotated[str, Meta(description="For people: what is wrong, and what to do about it")]
    details: Annotated[Any, Meta(description="More about this one case, if there is more to say")] | UnsetType = UNSET


class ErrorData(Struct):
    status: Annotated[int, Meta(description="The HTTP status")]


class Error(Struct):
    """Every error, in two shapes at once: `error` for clients of this API, the rest for those of WordPress."""

    error: ErrorText
    code: Annotated[str, Meta(description="The same as error.code")]
    message: Annotated[str, Meta(description="The same as error.message")]
    data: ErrorData


def either(*types: type[Struct]) -> Meta:
    """Says what a raw value may be: `Annotated[msgspec.Raw, either(Story, Deletion)]`.

    msgspec itself takes a union of structs only if they are tagged. It sees names here and no types, so the operation
    lists the types in `also`.
    """
    return Meta(extra_json_schema={"anyOf": [{"$ref": _REF_TEMPLATE.format(name=found.__name__)} for found in types]})


def document(
    operations: Sequence[Operation],
    *,
    title: str,
    version: str,
    description: str = "",
    servers: Sequence[str] = (),
    security_schemes: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The document, the same for the same declarations. Without servers the API is where the document is."""
    schemes = dict(security_schemes or {})
    _check(operations, schemes)
    types = [Error, *(found for operation in operations for found in _types(operation))]
    schemas, components = _schemas(types)
    if schemas[id(Error)] != {"$ref": ERROR_REF}:
        raise ValueError("Another type is called Error too. Give it another name.")
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        item = paths.setdefault(_template(operation.path), {})
        item[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": VERSION,
        "info": {"title": title, "version": version} | ({"description": description} if description else {}),
        **({"servers": [{"url": url} for url in servers]} if servers else {}),
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {"schemas": components} | ({"securitySchemes": schemes} if schemes else {}),
    }


def _check(operations: Sequence[Operation], schemes: Mapping[str, Any]) -> None:
    names: set[str] = set()
    addresses: set[tuple[str, str]] = set()
    shapes: dict[str, str] = {}
    for operation in operations:
        path = _template(operation.path)
        address = operation.method.upper(), path
        if operation.name in names:
            raise ValueError(f"Two operations are called {operation.name}.")
        if address in addresses:
            raise ValueError(f"{operation.name} declares {' '.join(address)} a second time.")
        if path != (other := shapes.setdefault(_PLACEHOLDER.sub("{}", path), path)):
            raise ValueError(f"{path} and {other} are one path to OpenAPI. Use the same names in both.")
        if not operation.answers:
            raise ValueError(f"{operation.name} has no answer.")
        if len({answer.status for answer in operation.answers}) < len(operation.answers):
            raise ValueError(f"{operation.name} has two answers with the same status.")
        placed = {parameter.name: parameter for parameter in operation.parameters if parameter.where == "path"}
        if wrong := set(placed) ^ set(_PLACEHOLDER.findall(path)):
            raise ValueError(f"{operation.name}: {sorted(wrong)} must be both in the path and among its parameters.")
        if optional := [name for name, parameter in placed.items() if not parameter.required]:
            raise ValueError(f"{operation.name}: {optional[0]} is a part of the path, and so it is required.")
        if unknown := set(operation.security) - set(schemes):
            raise ValueError(f"{operation.name} names security schemes that do not exist: {sorted(unknown)}.")
        names.add(operation.name)
        addresses.add(address)


def _template(path: str) -> str:
    return _PLACEHOLDER.sub(r"{\1}", path)


def _types(operation: Operation) -> Iterator[Any]:
    yield from (parameter.type for parameter in operation.parameters)
    yield from (answer.type for answer in operation.answers if answer.type is not None)
    if operation.body is not None:
        yield operation.body
    yield from operation.also


def _schemas(types: Sequence[Any]) -> tuple[dict[int, Any], dict[str, Any]]:
    """The schema of each type by the type's id (not every annotation can be hashed), and the components they name."""
    generated, components = msgspec.json.schema_components(types, ref_template=_REF_TEMPLATE)
    declared = {_REF_TEMPLATE.format(name=name) for name in components}
    if unknown := set(_references((generated, components))) - declared:
        raise ValueError(
            f"Schemas name types that nothing declares: {sorted(unknown)}. List them in an operation's also."
        )
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    return dict(zip(map(id, types), generated, strict=True)), dict(sorted(components.items()))


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(reference := node.get("$ref"), str):
            yield reference
        node = tuple(node.values())
    if isinstance(node, list | tuple):
        for value in node:
            yield from _references(value)


def _operation(operation: Operation, schemas: Mapping[int, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary, "tags": [operation.tag]}
    if operation.description:
        made["description"] = inspect.cleandoc(operation.description)
    if operation.parameters:
        made["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.where,
                "description": parameter.description,
                "required": parameter.required,
                "schema": schemas[id(parameter.type)],
            }
            for parameter in operation.parameters
        ]
    if operation.body is not None:
        content = {operation.body_content_type: {"schema": schemas[id(operation.body)]}}
        made["requestBody"] = {"required": True, "content": content}
    made["responses"] = _responses(operation, schemas)
    if operation.security:
        made["security"] = [{name: [] for name in operation.security}]
    return made


def _responses(operation: Operation, schemas: Mapping[int, Any]) -> dict[str, Any]:
    answers = {answer.status: answer for answer in operation.answers}
    errors: dict[int, dict[str, list[str]]] = {}
    for error in operation.errors:
        messages = errors.setdefault(error.status, {}).setdefault(error.code, [])
        if (message := _message(error)) not in messages:  # several errors may share a code
            messages.append(message)
    return {
        str(status): _response(status, answers.get(status), errors.get(status, {}), schemas)
        for status in sorted({*answers, *errors})
    }


def _response(
    status: int, answer: Answer | None, errors: Mapping[str, Sequence[str]], schemas: Mapping[int, Any]
) -> dict[str, Any]:
    """One status, which can be an answer, some errors, or both."""
    codes = ", ".join(f"`{code}`" for code in errors)
    if answer is None:
        description = f"{HTTPStatus(status).phrase}: {codes}"
    else:
        description = f"{answer.description} Or an error: {codes}." if errors else answer.description
    headers = dict(answer.headers) if answer else {}
    if status in _RETRY_AFTER:
        headers.setdefault("Retry-After", "Seconds to wait before the next try.")
    possible = [schemas[id(answer.type)]] if answer and answer.type is not None else []
    if errors:
        possible.append(_error_schema(status, list(errors)))
    response: dict[str, Any] = {"description": description}
    if headers:
        response["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in headers.items()
        }
    if possible:
        content = {"schema": possible[0] if len(possible) == 1 else {"anyOf": possible}}
        if errors:
            content["examples"] = {code: _error_example(status, code, said) for code, said in errors.items()}
        response["content"] = {JSON: content}
    return response


def _error_schema(status: int, codes: Sequence[str]) -> dict[str, Any]:
    code = {"enum": list(codes)}
    narrowed = {
        "error": {"properties": {"code": code}},
        "code": code,
        "data": {"properties": {"status": {"const": status}}},
    }
    return {"allOf": [{"$ref": ERROR_REF}, {"properties": narrowed}]}


def _error_example(status: int, code: str, messages: Sequence[str]) -> dict[str, Any]:
    text = {"code": code, "message": messages[0]}
    return {"summary": " ".join(messages), "value": {"error": text, **text, "data": {"status": status}}}


def _message(error: type[ApiError]) -> str:
    """The docstring's first line, which `ApiError` sends when it is raised without words of its own."""
    message = inspect.cleandoc(error.__doc__ or "").partition("\n")[0]
    if not message:
        raise ValueError(f"{error.__name__} needs a docstring: it is the public message.")
    return message
