"""The bodies of our answers."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from starlette.responses import Response

from ingest.errors import InvalidSchema
from ingest.items import Accepted, BatchWarning, ItemError, ItemState, ItemStates, RequestState
from runtime import errors
from store import ingest_jobs, ingest_requests

# Of a batch all; ten thousand story ids are told in `errors` alone.
MAX_DETAILS = 300

_ENCODER = msgspec.json.Encoder()


def accepted(
    request_id: str, *, accepted: int, rejected: Sequence[ItemError], warnings: Sequence[BatchWarning]
) -> bytes:
    return _ENCODER.encode(
        Accepted(
            request_id=request_id,
            accepted_count=accepted,
            rejected_count=len(rejected),
            errors=list(rejected),
            warnings=list(warnings),
        )
    )


class NothingAccepted(InvalidSchema):
    """Not one item of the batch was acceptable: `errors` says why. Do not send it again as it is."""

    def __init__(self, request_id: str, rejected: Sequence[ItemError], warnings: Sequence[BatchWarning]) -> None:
        shown = msgspec.to_builtins(list(rejected[:MAX_DETAILS]))
        super().__init__(details=shown)
        envelope = accepted(request_id, accepted=0, rejected=rejected, warnings=warnings)
        # In both shapes: the error that every client knows, and the counts of a batch.
        self.body = errors.body(self)[:-1] + b"," + envelope[1:]


def nothing_accepted(error: NothingAccepted) -> Response:
    return Response(error.body, error.status, media_type="application/json")


def state(request: ingest_requests.State) -> bytes:
    return _ENCODER.encode(
        RequestState(
            request_id=request.request_id,
            source=request.source,
            job_type=request.job_type,  # type: ignore[arg-type]
            status=request.status,  # type: ignore[arg-type]
            total_items=request.total_items,
            accepted_items=request.accepted_items,
            rejected_items=request.rejected_items,
            processed_items=request.processed_items,
            failed_items=request.failed_items,
            last_error=request.last_error,
            created_at=_time(request.created_at),
            updated_at=_time(request.updated_at),
        )
    )


def items(found: Sequence[ingest_jobs.ItemState], *, next_cursor: str | None) -> bytes:
    shown = [
        ItemState(
            index=item.index,
            external_id=item.external_ref,
            status=item.status,  # type: ignore[arg-type]
            attempts=item.attempts,
            error_code=item.error_code,
            message=item.message,
            can_retry=item.can_retry,
        )
        for item in found
    ]
    return _ENCODER.encode(ItemStates(items=shown, next_cursor=next_cursor, has_more=next_cursor is not None))


def _time(time: datetime) -> str:
    return time.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
