"""Takes a batch exactly once.

One transaction writes the request row, the nonce, the jobs and their payloads. The request row comes first: its unique
keys decide between batches that arrive together. Who loses reads what the winner was answered, and gets the same bytes;
a retry after a lost response does so too. A batch that is refused leaves nothing behind, neither nonce nor key.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ingest.errors import IdempotencyConflict, NonceReplay
from runtime import logs
from store import errors, ingest_requests, nonces
from store.connection import Connection
from store.ingest_requests import Earlier, NewRequest, RequestTaken
from store.pool import Pool

log = logs.get(__name__)

# A COMMIT whose outcome is not known is read back; this often, then the client has to ask again.
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets: the first time, and each time it asks again."""

    body: bytes
    all_accepted: bool

    @property
    def status(self) -> int:
        return 202 if self.all_accepted else 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes two batches the same."""

    source: str
    job_type: str
    idempotency_key: str
    payload_sha256: bytes
    retention_hours: int


Write = Callable[[Connection], Awaitable[None]]


async def earlier_answer(conn: Connection, identity: Identity) -> Answer | None:
    """The answer this batch got before; None if it is new."""
    earlier = await _find(conn, identity)
    if earlier is None or earlier.is_expired:
        return None
    return _same_again(earlier, identity)


async def accept(pool: Pool, new: NewRequest, identity: Identity, *, nonce: bytes, write: Write) -> tuple[Answer, bool]:
    """Write the batch with `write`, or find that it was written before; says which: True if it is new."""

    async def work(conn: Connection) -> None:
        await _insert_request(conn, new, identity)
        await nonces.take(conn, nonce, new.key_id)
        await write(conn)

    async def look(conn: Connection) -> Answer | None:
        earlier = await _find(conn, identity)
        # The very same request again is a retry, however late it comes.
        if earlier is None or (earlier.is_expired and earlier.request_id != new.request_id):
            return None
        return _same_again(earlier, identity)

    for _ in range(MAX_ATTEMPTS):
        try:
            await pool.transaction(work)
        except nonces.NonceUsed:
            raise NonceReplay from None
        except RequestTaken:
            answer = await pool.transaction(look)
            if answer is not None:
                return answer, False
            raise IdempotencyConflict(
                "This X-Novel-Request-Id was used before. Use a new UUID for a new batch."
            ) from None
        except errors.CommitUncertain:
            log.warning("ingest.commit_uncertain", request_id=new.request_id)
            answer = await pool.transaction(look)
            if answer is not None:
                return answer, True
            # Not there. Should the COMMIT still be under way, the next INSERT waits for it, and finds its row.
            continue
        return Answer(new.response, new.accepted_items == new.total_items), True
    raise errors.DatabaseUnavailable("the connection broke at every COMMIT")


async def _insert_request(conn: Connection, new: NewRequest, identity: Identity) -> None:
    try:
        await ingest_requests.insert(conn, new)
    except RequestTaken:
        earlier = await _find(conn, identity)
        if earlier is None or not earlier.is_expired:
            raise
        await ingest_requests.release_key(conn, earlier)
        await ingest_requests.insert(conn, new)


async def _find(conn: Connection, identity: Identity) -> Earlier | None:
    return await ingest_requests.find_earlier(
        conn,
        source=identity.source,
        job_type=identity.job_type,
        idempotency_key=identity.idempotency_key,
        retention_hours=identity.retention_hours,
    )


def _same_again(earlier: Earlier, identity: Identity) -> Answer:
    if earlier.payload_sha256 != identity.payload_sha256:
        raise IdempotencyConflict
    return Answer(earlier.response, earlier.all_accepted)
