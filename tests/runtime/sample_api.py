"""A small API, declared as a service would declare its own."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from runtime import openapi
from runtime.errors import ApiError, InternalError, NotFound, Unavailable
from runtime.openapi import Answer, Operation, Parameter, either

Identifier = Annotated[str, Meta(min_length=1, max_length=191, examples=["abc123"])]
Time = Annotated[datetime, Meta(tz=True, description="RFC 3339 with a time zone", examples=["2026-02-21T08:00:00Z"])]
Title = Annotated[str, Meta(min_length=1, max_length=255, examples=["Đấu Phá Thương Khung"])]
Name = Annotated[str, Meta(min_length=1, max_length=120)]
RequestKey = Annotated[str, Meta(pattern="^[!-~]{1,120}$", examples=["batch-2026-02-21-0001"])]


class Story(Struct, kw_only=True):
    """A story as its source has it now."""

    id: Identifier
    slug: Annotated[str, Meta(min_length=1, max_length=191, pattern="^[a-z0-9-]+$", examples=["dau-pha-thuong-khung"])]
    title: Title
    updated_at: Time
    status: Annotated[int, Meta(ge=0, le=4, description="0 draft, 1 ongoing, 2 completed")] = 1
    genres: Annotated[list[Name], Meta(max_length=50, description="Replaces all genres", examples=[["Tiên hiệp"]])] = []
    rating: Annotated[float, Meta(gt=0, multiple_of=0.5)] | UnsetType | None = UNSET
    language: str = "vi"
    deleted: Literal[False] | UnsetType = UNSET


class Deletion(Struct, kw_only=True):
    """A story that its source has deleted.

    A later, newer item brings it back.
    """

    id: Identifier
    updated_at: Time
    deleted: Literal[True]


class Batch(Struct, kw_only=True):
    source: Annotated[str, Meta(min_length=1, max_length=40, description="Name of the source", examples=["source-a"])]
    items: Annotated[
        list[Annotated[Raw, either(Story, Deletion)]],
        Meta(min_length=1, max_length=300, description="Each is judged on its own"),
    ]


class ItemError(Struct):
    """Why one item was not taken."""

    index: Annotated[int, Meta(ge=0, description="Its place in the batch, from 0")]
    code: Literal["invalid_slug", "missing_field"]
    message: str


class Accepted(Struct, kw_only=True):
    """What became of a batch."""

    request_id: str
    accepted_count: int
    errors: list[ItemError]
    counts: dict[str, int] = {}


class Comment(Struct):
    text: Annotated[str, Meta(max_length=2000)]
    likes: int
    replies: "list[Comment]" = []


class Comments(Struct):
    items: list[Comment]
    next_cursor: str | None


class InvalidSignature(ApiError):
    """The key is unknown or the signature does not match the request."""

    status, code = 401, "invalid_signature"


class KeyExpired(ApiError):
    """The key has expired. Ask the operator for a new one.

    This second paragraph is for those who read the code.
    """

    status, code = 401, "key_expired"


class InvalidSchema(ApiError):
    """The body does not have the form that this address takes."""

    status, code = 422, "invalid_schema"


class NotAList(ApiError):
    """`items` must be a list."""

    status, code = 422, "invalid_schema"


class RateLimited(ApiError):
    """Too many requests. Try again after the seconds in Retry-After."""

    status, code = 429, "rate_limited"

    def __init__(self, *, retry_after_seconds: int) -> None:
        super().__init__(headers={"Retry-After": str(retry_after_seconds)})


class QueueFull(Unavailable):
    """The queue is full for now. Try again after the seconds in Retry-After."""

    code = "queue_full"


SECURITY_SCHEMES = {
    "Key": {"type": "apiKey", "in": "header", "name": "X-Novel-Key-Id", "description": "The id of the crawler's key."},
    "Signature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Novel-Signature",
        "description": "HMAC-SHA256 of `method.path.timestamp.nonce.body_sha256` with the key's secret.",
    },
    "Login": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
}

POST_BATCH = Operation(
    method="POST",
    path="/api/v1/stories/bulk",
    name="postStories",
    summary="Push a batch of stories",
    description="""Takes up to 300 stories. What was accepted is never lost.

    A repeated batch with the same `Idempotency-Key` gets the same answer.
    """,
    tag="Ingest",
    parameters=[
        Parameter(name="Idempotency-Key", where="header", description="One per batch", type=RequestKey),
        Parameter(
            name="Content-Encoding",
            where="header",
            description="How the body is compressed",
            required=False,
            type=Annotated[Literal["gzip", "zstd", "identity"], Meta(extra_json_schema={"default": "identity"})],
        ),
    ],
    body=Batch,
    also=(Story, Deletion),
    answers=[
        Answer(status=202, description="All items are queued.", type=Accepted, headers={"X-Count": "How many"}),
        Answer(status=422, description="No item was acceptable.", type=Accepted),
    ],
    errors=[InvalidSchema, NotAList, InvalidSignature, KeyExpired, RateLimited, QueueFull, Unavailable, InternalError],
    security=("Key", "Signature"),
)
GET_COMMENTS = Operation(
    method="GET",
    path="/api/v1/stories/{id:int}/comments",
    name="getComments",
    summary="List the comments on a story",
    tag="Stories",
    parameters=[
        Parameter(
            name="id", where="path", description="The story's number", type=Annotated[int, Meta(ge=1, examples=[7])]
        ),
        Parameter(
            name="limit",
            where="query",
            description="How many",
            required=False,
            type=Annotated[int, Meta(ge=1, le=100, extra_json_schema={"default": 20})],
        ),
    ],
    answers=[Answer(status=200, description="The newest first.", type=Comments)],
    errors=[NotFound],
)
DELETE_STORY = Operation(
    method="DELETE",
    path="/api/v1/stories/{id:int}",
    name="deleteStory",
    summary="Delete a story",
    tag="Stories",
    parameters=[Parameter(name="id", where="path", description="The story's number", type=int)],
    answers=[Answer(status=204, description="It is gone.")],
    errors=[NotFound],
    security=("Login",),
)
OPERATIONS = [POST_BATCH, GET_COMMENTS, DELETE_STORY]


def sample(*operations: Operation, **changes: Any) -> dict[str, Any]:
    """The document of these operations, or of the whole sample."""
    told = {
        "title": "Sample",
        "version": "1.2.3",
        "description": "Stories in, `JSON` out.",
        "servers": ["https://novels.example"],
        "security_schemes": SECURITY_SCHEMES,
    }
    return openapi.document(operations or OPERATIONS, **{**told, **changes})
