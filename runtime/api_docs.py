"""`/openapi.json` for programs and `/docs` for people: the same document, the second as a page without scripts."""

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from runtime.openapi import ERROR_REF
from runtime.schema_fields import NoExample, SchemaFields

_CODE = re.compile(r"`([^`\n]+)`")


def routes(document: Mapping[str, Any]) -> list[Route]:
    """Serves a document that `openapi.document` made. It is encoded and rendered here, once."""
    encoded = orjson.dumps(document)
    kept = {"ETag": f'"{hashlib.sha256(encoded).hexdigest()[:32]}"', "Cache-Control": "public, max-age=60"}
    before_nonce, after_nonce = _page(document)

    async def openapi_json(request: Request) -> Response:
        if _is_known(request.headers.get("if-none-match", ""), kept["ETag"]):
            return Response(status_code=304, headers=kept)
        return Response(encoded, media_type="application/json", headers=kept | {"X-Content-Type-Options": "nosniff"})

    async def docs(request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        return HTMLResponse(before_nonce + nonce.encode() + after_nonce, headers=_headers(nonce))

    return [Route("/openapi.json", openapi_json), Route("/docs", docs)]


def _is_known(if_none_match: str, etag: str) -> bool:
    given = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return bool(given & {etag, "*"})


def _headers(nonce: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",  # the nonce is good for one answer
    }


def _page(document: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The page, cut where the nonce goes."""
    mark = secrets.token_hex(16)
    components = document["components"]
    schemas = SchemaFields(components["schemas"])
    page = _TEMPLATES.get_template("api_docs.html").render(
        info=document["info"],
        servers=[server["url"] for server in document.get("servers", [])],
        schemes=components.get("securitySchemes", {}),
        groups=_groups(document, schemas),
        error_fields=list(schemas.of({"$ref": ERROR_REF})),
        nonce=mark,
    )
    before, after = page.encode().split(mark.encode())
    return before, after


def prose(text: str) -> Markup:
    """Text as HTML: a blank line parts paragraphs, backticks mark code, everything else is just text."""
    paragraphs = [_CODE.sub(r"<code>\1</code>", str(escape(part.strip()))) for part in re.split(r"\n\s*\n", text)]
    return Markup("".join(f"<p>{paragraph}</p>" for paragraph in paragraphs if paragraph))  # noqa: S704  escaped above


_TEMPLATES = Environment(loader=PackageLoader("runtime"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
_TEMPLATES.filters["prose"] = prose


# -- what the page shows ---------------------------------------------------------------------------------


def _groups(document: Mapping[str, Any], schemas: SchemaFields) -> dict[str, list[dict[str, Any]]]:
    """The operations under each tag, in the order in which they were declared."""
    groups: dict[str, list[dict[str, Any]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            shown = {"method": method.upper(), "path": path, **_operation(operation, schemas)}
            groups[operation["tags"][0]].append(shown)
    return groups


def _operation(operation: Mapping[str, Any], schemas: SchemaFields) -> dict[str, Any]:
    return {
        "name": operation["operationId"],
        "summary": operation["summary"],
        "description": operation.get("description", ""),
        "security": [name for needed in operation.get("security", []) for name in needed],
        "parameters": [
            (
                parameter["in"],
                schemas.named(
                    parameter["name"],
                    parameter["schema"],
                    required=parameter["required"],
                    description=parameter["description"],
                ),
            )
            for parameter in operation.get("parameters", [])
        ],
        "body": _body(operation, schemas),
        "answers": list(_answers(operation, schemas)),
        "errors": list(_errors(operation)),
    }


def _body(operation: Mapping[str, Any], schemas: SchemaFields) -> dict[str, Any] | None:
    for content_type, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content["schema"]
        try:
            example = orjson.dumps(schemas.example(schema), option=orjson.OPT_INDENT_2).decode()
        except NoExample:
            example = ""
        return {
            "content_type": content_type,
            "type": schemas.type(schema),
            "fields": list(schemas.of(schema)),
            "example": example,
        }
    return None


def _answers(operation: Mapping[str, Any], schemas: SchemaFields) -> Iterator[dict[str, Any]]:
    """The answers that are more than errors."""
    for status, response in operation["responses"].items():
        possible = [content["schema"] for content in response.get("content", {}).values()]
        possible = [option for schema in possible for option in schema.get("anyOf", [schema])]
        good = [schema for schema in possible if {"$ref": ERROR_REF} not in schema.get("allOf", [])]
        if good or not possible:
            yield {
                "status": status,
                "phrase": HTTPStatus(int(status)).phrase,
                "description": response["description"],
                "headers": {name: header["description"] for name, header in response.get("headers", {}).items()},
                "type": " or ".join(map(schemas.type, good)),
                "fields": [field for schema in good for field in schemas.of(schema)],
            }


def _errors(operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for status, response in operation["responses"].items():
        for content in response.get("content", {}).values():
            for code, example in content.get("examples", {}).items():
                yield status, code, example["summary"]
