"""The ingest routes, as OpenAPI describes them."""

from typing import Annotated, Any

from msgspec import Meta

from ingest import errors, headers, routes
from ingest.following import DEFAULT_LIMIT, MAX_LIMIT, InvalidCursor, InvalidFilter
from ingest.items import (
    Accepted,
    ChapterBatch,
    ChapterDeletion,
    ChapterItem,
    ItemStates,
    RequestState,
    StoryBatch,
    StoryDeletion,
    StoryIds,
    StoryItem,
)
from runtime.errors import InternalError, MethodNotAllowed, NotFound, PayloadTooLarge, Unavailable
from runtime.openapi import Answer, Operation, Parameter

TAG = "ingest"
SCHEME = "signature"

SECURITY_SCHEMES: dict[str, dict[str, Any]] = {
    SCHEME: {
        "type": "apiKey",
        "in": "header",
        "name": headers.SIGNATURE,
        "description": "HMAC-SHA256 with the key's secret, in lower-case hexadecimal, over"
        " METHOD.path.timestamp.nonce.body_sha256, where body_sha256 is the hexadecimal SHA-256 of the body as sent.",
    }
}

_Visible = Annotated[str, Meta(min_length=1, max_length=128, pattern="^[!-~]+$")]
_Uuid = Annotated[
    str,
    Meta(
        pattern="^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
        examples=["2f24b68a-b6d5-41d3-a4e8-33c8b679ab67"],
    ),
]

_SIGNED = (
    Parameter(
        name=headers.KEY_ID,
        where="header",
        type=Annotated[str, Meta(min_length=1, max_length=64, pattern="^[!-~]+$")],
        description="Id of the key",
    ),
    Parameter(
        name=headers.TIMESTAMP,
        where="header",
        type=Annotated[str, Meta(pattern="^[0-9]{1,12}$", examples=["1771660800"])],
        description="Seconds since 1970, at most 300 away from the server's time",
    ),
    Parameter(name=headers.NONCE, where="header", type=_Visible, description="New for each request"),
)
_PUSHED = (
    *_SIGNED,
    Parameter(name=headers.REQUEST_ID, where="header", type=_Uuid, description="The client's id of the batch"),
    Parameter(
        name=headers.IDEMPOTENCY_KEY,
        where="header",
        type=Annotated[str, Meta(min_length=1, max_length=120, pattern="^[!-~]+$")],
        description="The same for each try of one batch: only one is executed, and all get its answer",
    ),
    Parameter(
        name="Content-Encoding",
        where="header",
        required=False,
        type=Annotated[str, Meta(pattern="^(gzip|zstd|identity)$")],
        description="gzip, zstd or identity; the signature is over the bytes as sent",
    ),
)
_ASKED = (
    *_SIGNED,
    Parameter(
        name=headers.REQUEST_ID,
        where="header",
        required=False,
        type=_Uuid,
        description="The client's id of the question; it may be left out",
    ),
)
_REQUEST_ID = Parameter(
    name="request_id", where="path", type=_Uuid, description="The request_id of the answer to the batch"
)

_KNOCKING = (
    errors.HttpsRequired,
    errors.AddressNotAllowed,
    errors.RateLimited,
    errors.InvalidSignature,
    errors.TimestampSkew,
    errors.NonceReplay,
    errors.KeyInactive,
    InternalError,
    Unavailable,
)
_PUSHING = (
    *_KNOCKING,
    MethodNotAllowed,
    PayloadTooLarge,
    errors.PermissionDenied,
    errors.MissingIdempotencyKey,
    errors.InvalidRequest,
    errors.InvalidSchema,
    errors.UnsupportedEncoding,
    errors.BodyTooSlow,
    errors.IdempotencyConflict,
    errors.QueueFull,
)
_ASKING = (*_KNOCKING, NotFound, MethodNotAllowed, PayloadTooLarge, errors.BodyTooSlow, errors.InvalidRequest)
_ACCEPTED = (
    Answer(status=202, description="Everything was queued", type=Accepted),
    Answer(
        status=200, description="Some items were queued; `errors` says what is wrong with the others", type=Accepted
    ),
)


def operations() -> list[Operation]:
    return [
        Operation(
            method="POST",
            path=routes.STORIES,
            name="pushStories",
            summary="Push a batch of stories",
            description="Queues up to 300 stories of one source, at most 5 MiB decompressed. A retry with the same"
            " Idempotency-Key and payload gets the first answer, byte for byte, for 72 hours.",
            tag=TAG,
            parameters=_PUSHED,
            body=StoryBatch,
            also=(StoryItem, StoryDeletion),
            answers=_ACCEPTED,
            errors=_PUSHING,
            security=(SCHEME,),
        ),
        Operation(
            method="POST",
            path=routes.CHAPTERS,
            name="pushChapters",
            summary="Push a batch of chapters",
            description="Queues up to 300 chapters of one source, at most 12 MiB decompressed. The stories may come"
            " before or after them.",
            tag=TAG,
            parameters=_PUSHED,
            body=ChapterBatch,
            also=(ChapterItem, ChapterDeletion),
            answers=_ACCEPTED,
            errors=_PUSHING,
            security=(SCHEME,),
        ),
        Operation(
            method="POST",
            path=routes.REBUILD_STATS,
            name="rebuildStats",
            summary="Have the counts of stories computed again",
            tag=TAG,
            parameters=_PUSHED,
            body=StoryIds,
            answers=_ACCEPTED,
            errors=_PUSHING,
            security=(SCHEME,),
        ),
        Operation(
            method="GET",
            path=routes.REQUEST,
            name="showRequest",
            summary="What became of a batch",
            tag=TAG,
            parameters=(*_ASKED, _REQUEST_ID),
            answers=(Answer(status=200, description="Its state and counts", type=RequestState),),
            errors=_ASKING,
            security=(SCHEME,),
        ),
        Operation(
            method="GET",
            path=routes.REQUEST_ITEMS,
            name="showRequestItems",
            summary="What became of each item of a batch",
            tag=TAG,
            parameters=(
                *_ASKED,
                _REQUEST_ID,
                Parameter(
                    name="limit",
                    where="query",
                    required=False,
                    type=Annotated[int, Meta(ge=1, le=MAX_LIMIT, extra_json_schema={"default": DEFAULT_LIMIT})],
                    description="Most items on a page",
                ),
                Parameter(
                    name="cursor", where="query", required=False, description="The next_cursor of the page before"
                ),
            ),
            answers=(Answer(status=200, description="A page, in the order of the batch", type=ItemStates),),
            errors=(*_ASKING, InvalidCursor, InvalidFilter),
            security=(SCHEME,),
        ),
    ]
