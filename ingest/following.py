"""What became of a batch: its state, and that of each item."""

import base64
import binascii

from starlette.requests import Request

from ingest import answers, headers, rebuild
from ingest.door import Visitor
from runtime.errors import ApiError, NotFound
from store import ingest_jobs, ingest_requests, payloads
from store.connection import Connection
from store.ingest_requests import State

DEFAULT_LIMIT = 100
MAX_LIMIT = 300


class InvalidCursor(ApiError):
    """This cursor is not one that an answer of this address has given."""

    status, code = 400, "invalid_cursor"


class InvalidFilter(ApiError):
    """limit must be a whole number from 1 to 300."""

    status, code = 400, "invalid_filter"


async def find(conn: Connection, request_id: str, visitor: Visitor) -> State:
    """A request of a source that this key may use. One of another is, to this key, not there."""
    uuid = headers.uuid(request_id)
    state = await ingest_requests.find(conn, uuid) if uuid else None
    if state is None or not _may_see(visitor, state):
        raise NotFound("There is no such request of a source that this key may use.")
    return state


async def items(conn: Connection, state: State, request: Request) -> bytes:
    """A page of the items of a request, in the order of its batch."""
    limit = _limit(request.query_params.get("limit"))
    after = _after(request.query_params.get("cursor"))
    found = await ingest_jobs.items(
        conn, request_id=state.request_id, source=state.source, after=after, limit=limit + 1
    )
    page = found[:limit]
    return answers.items(page, next_cursor=_cursor(page[-1].index) if len(found) > limit else None)


def _may_see(visitor: Visitor, state: State) -> bool:
    if state.job_type == payloads.REBUILD_STATS:
        return visitor.key.sources is None or state.source == rebuild.source_of(visitor.key)
    return visitor.key.may_use(state.source)


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidFilter
    return int(text)


def _cursor(index: int) -> str:
    return base64.urlsafe_b64encode(f"item:{index}".encode()).rstrip(b"=").decode()


def _after(cursor: str | None) -> int:
    if cursor is None:
        return -1
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidCursor from None
    kind, _, number = text.partition(":")
    if kind != "item" or not (number.isascii() and number.isdigit() and len(number) < 6):
        raise InvalidCursor
    return int(number)
