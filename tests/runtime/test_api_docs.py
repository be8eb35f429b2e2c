"""`/openapi.json` and `/docs`, as a program and a browser get them."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Annotated, Any, Literal

import httpx
import msgspec
import orjson
import pytest
from jinja2 import Template
from msgspec import Meta

from runtime import api_docs, openapi
from runtime.errors import ApiError
from runtime.openapi import Answer, Operation, Parameter
from tests.runtime.sample_api import DELETE_STORY, GET_COMMENTS, POST_BATCH, sample
from tests.runtime.serving import application, client

pytestmark = pytest.mark.anyio

EMPTY_ELEMENTS = {"meta", "link", "wbr"}
INLINE_ELEMENTS = {"a", "b", "code", "span", "wbr"}


class Page(HTMLParser):
    """What a browser makes of a page: its elements, its ids and links, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.links: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links |= {value or "" for name, value in attrs if name in {"href", "src"}}
        if tag not in INLINE_ELEMENTS:
            self.text += " "
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data

    def words(self) -> str:
        return re.sub(r"\s+", " ", self.text)


def asking(document: dict[str, Any] | None = None) -> httpx.AsyncClient:
    return client(application(*api_docs.routes(document or sample())))


async def shown(*operations: Operation, **changes: Any) -> Page:
    answer = await asking(sample(*operations, **changes)).get("/docs")
    assert answer.status_code == 200
    page = Page(answer.text)
    assert page.open == []
    return page


# -- /openapi.json ---------------------------------------------------------------------------------------


async def test_the_document_is_served_as_json() -> None:
    answer = await asking().get("/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "public, max-age=60"
    assert answer.json() == sample()


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
async def test_who_has_the_document_is_not_sent_it_again(form: str) -> None:
    etag = (await asking().get("/openapi.json")).headers["etag"]
    answer = await asking().get("/openapi.json", headers={"If-None-Match": form.format(etag)})
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == etag
    assert answer.headers["cache-control"] == "public, max-age=60"


async def test_another_document_has_another_tag() -> None:
    etag = (await asking().get("/openapi.json")).headers["etag"]
    answer = await asking(sample(title="Other")).get("/openapi.json", headers={"If-None-Match": etag})
    assert answer.status_code == 200
    assert answer.json()["info"]["title"] == "Other"


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
async def test_head_is_answered_and_other_methods_are_not(path: str) -> None:
    head = await asking().head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert (await asking().post(path)).status_code == 405


# -- /docs -----------------------------------------------------------------------------------------------


async def test_the_page_names_the_api_and_says_where_it_is() -> None:
    words = (await shown()).words()
    assert "Sample Version 1.2.3 · https://novels.example Stories in, JSON out." in words


async def test_every_operation_is_shown_under_its_tag_and_can_be_linked_to() -> None:
    page = await shown()
    words = page.words()
    main = words[words.index("Version") :]
    places = [
        main.index(text)
        for text in (
            "Ingest Push a batch of stories POST/api/v1/stories/bulk",
            "Stories List the comments on a story GET/api/v1/stories/{id}/comments",
            "Delete a story DELETE/api/v1/stories/{id}",
        )
    ]
    assert places == sorted(places)
    assert page.ids == ["authentication", "postStories", "getComments", "deleteStory", "errors"]
    assert page.links == {"openapi.json", *(f"#{name}" for name in page.ids)}


async def test_a_description_has_paragraphs_and_code() -> None:
    answer = await asking().get("/docs")
    assert "<p>Takes up to 300 stories. What was accepted is never lost.</p>" in answer.text
    assert "<p>A repeated batch with the same <code>Idempotency-Key</code> gets the same answer.</p>" in answer.text


async def test_parameters_are_shown_with_place_type_and_limits() -> None:
    words = (await shown(GET_COMMENTS)).words()
    assert "id path integer required The story's number range ≥ 1" in words
    assert "limit query integer How many range 1 – 100 default 20" in words


async def test_the_fields_of_the_body_are_shown_with_those_inside_them() -> None:
    words = (await shown(POST_BATCH)).words()
    assert "Batch, as application/json" in words
    assert "source string required Name of the source length 1 – 40" in words
    assert "items list of Story or Deletion required Each is judged on its own items 1 – 300" in words
    assert "items[] as Story A story as its source has it now." in words
    assert "items[].slug string required length 1 – 191 pattern ^[a-z0-9-]+$" in words
    assert "items[].status integer 0 draft, 1 ongoing, 2 completed range 0 – 4 default 1" in words
    assert '"slug": "dau-pha-thuong-khung"' in words


async def test_a_body_without_examples_is_shown_without_one() -> None:
    assert "Example" in (await shown(POST_BATCH)).words()
    words = (await shown(replace(POST_BATCH, body=list[int]))).words()
    assert "list of integer, as application/json" in words
    assert "Example" not in words


async def test_answers_are_shown_with_their_fields_and_headers() -> None:
    words = (await shown()).words()
    assert "202 Accepted All items are queued. X-Count How many Fields of Accepted" in words
    assert 'errors[].code string one of "invalid_slug", "missing_field"' in words
    assert "counts map of integer not always there" in words
    assert "422 Unprocessable" in words
    assert "204 No Content without a body It is gone." in words


async def test_an_answer_that_is_no_object_is_named() -> None:
    words = (
        await shown(replace(GET_COMMENTS, answers=[Answer(status=200, description="Ids.", type=list[int])]))
    ).words()
    assert "200 OK Ids. list of integer" in words


async def test_errors_are_shown_with_status_code_and_message() -> None:
    words = (await shown(POST_BATCH)).words()
    assert "401 invalid_signature The key is unknown or the signature does not match the request." in words
    assert "429 rate_limited Too many requests." in words
    assert "422 invalid_schema The body does not have the form that this address takes. items must be a list." in words
    assert "error.details anything not always there" in words


async def test_what_an_operation_needs_leads_to_how_it_is_done() -> None:
    words = (await shown()).words()
    assert "Key header X-Novel-Key-Id The id of the crawler's key." in words
    assert "Login http, bearer" in words
    assert "Needs Key and Signature." in words


async def test_an_api_without_operations_has_a_page() -> None:
    answer = await asking(openapi.document([], title="Empty", version="0")).get("/docs")
    assert answer.status_code == 200
    page = Page(answer.text)
    assert "Empty Version 0" in page.words()
    assert page.links == {"openapi.json"}


# -- safety ----------------------------------------------------------------------------------------------


async def test_a_browser_is_told_to_trust_nothing_but_the_page() -> None:
    answer = await asking().get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(maxsplit=1) for part in answer.headers["content-security-policy"].split(";"))
    nonce = policy.pop("style-src").removeprefix("'nonce-").removesuffix("'")
    assert policy == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    assert re.findall(r"<(?:style|script)[^>]*>", answer.text) == [f'<style nonce="{nonce}">']
    assert "style" not in Page(answer.text).attributes
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"


async def test_answers_differ_in_their_nonce_alone() -> None:
    asked = asking()
    answers = [await asked.get("/docs") for _ in range(3)]
    nonces = [re.findall(r"'nonce-(.*?)'", answer.headers["content-security-policy"])[0] for answer in answers]
    assert len(set(nonces)) == 3
    assert len({answer.text.replace(nonce, "") for answer, nonce in zip(answers, nonces, strict=True)}) == 1


async def test_the_page_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    renderings = []

    def render(template: Template, **told: str) -> str:
        renderings.append(template.name)
        return f"a page with {told['nonce']} in it"

    monkeypatch.setattr(Template, "render", render)
    asked = asking()
    for _ in range(3):
        assert (await asked.get("/docs")).text.startswith("a page with ")
    assert renderings == ["api_docs.html"]


HOSTILE = "`</p>\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;`\n\n<b style='x'>"


class HostileError(ApiError):
    status, code = 400, HOSTILE


HostileError.__doc__ = HOSTILE
HostileType = msgspec.defstruct(
    "Hostile",
    [
        (
            "a",
            Annotated[str, Meta(description=HOSTILE, pattern=re.escape(HOSTILE), examples=[HOSTILE])],
            msgspec.field(name="'><script>alert(4)</script>`"),
        ),
        ("b", Literal["<script>alert(3)</script>", "\"'><i>"], "\"'><i>"),
    ],
    namespace={"__doc__": HOSTILE},
)


async def test_nothing_that_is_shown_can_be_more_than_text() -> None:
    hostile = Operation(
        method="POST",
        path=f"/{HOSTILE}",
        name=HOSTILE,
        summary=HOSTILE,
        description=HOSTILE,
        tag=HOSTILE,
        parameters=[Parameter(name=HOSTILE, where="header", description=HOSTILE, type=HostileType)],
        body=list[HostileType],  # type: ignore[valid-type]
        body_content_type=HOSTILE,
        answers=[Answer(status=200, description=HOSTILE, type=HostileType, headers={HOSTILE: HOSTILE})],
        errors=[HostileError],
        security=(HOSTILE,),
    )
    schemes = {HOSTILE: {"type": HOSTILE, "scheme": HOSTILE, "description": HOSTILE, "in": HOSTILE, "name": HOSTILE}}
    told = {"title": HOSTILE, "version": HOSTILE, "description": HOSTILE, "servers": [HOSTILE]}
    document = sample(hostile, DELETE_STORY, **told, security_schemes={**schemes, "Login": {"type": HOSTILE}})
    answer = await asking(document).get("/docs")
    page = Page(answer.text)
    plain = await shown()
    assert set(page.elements) <= set(plain.elements)
    assert page.attributes <= plain.attributes
    assert all(link.startswith("#") or link == "openapi.json" for link in page.links)
    assert "<script" not in answer.text
    assert html.escape("<script>alert(1)</script>") in answer.text
    assert (await asking(document).get("/openapi.json")).content == orjson.dumps(document)
