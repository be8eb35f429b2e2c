"""What the ingest routes do, once for all of them. The order of checks is explained in `door`."""

import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import Counter
from starlette.requests import Request

from ingest import accepting, answers, batch, decompression, envelope, headers, reading, standing_items
from ingest.accepting import Answer, Identity
from ingest.answers import NothingAccepted
from ingest.backpressure import Backpressure
from ingest.batch import Kind
from ingest.door import Door, Visitor, address_of
from ingest.envelope import Envelope
from ingest.errors import NonceReplay, PermissionDenied
from ingest.reading import Body
from ingest.room import Room
from ingest.stage import Stage, Turns
from runtime import logs
from runtime.settings import IngestSettings
from store import ingest_jobs, nonces, wakeups
from store.connection import Connection
from store.ingest_requests import NewRequest
from store.pool import Pool
from store.rate_windows import Limit
from store.redis_link import RedisLink

log = logs.get(__name__)

# A question has no body; a client that sends one all the same may do so.
MAX_QUESTION_BYTES = 1024
# Asking for states is cheap, and a crawler that has to wait asks often.
READS_PER_PUSH = 10

ITEMS = Counter("novel_ingest_items_total", "Items of batches", labelnames=("job_type", "outcome"))
BATCHES = Counter("novel_ingest_batches_total", "Batches", labelnames=("job_type", "outcome"))
BYTES = Counter("novel_ingest_bytes_total", "Bytes of accepted batches, decompressed", labelnames=("job_type",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a pushing route takes."""

    permission: str
    max_bytes: int
    fills_queue: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A signed request on its way in."""

    visitor: Visitor
    request_id: str
    idempotency_key: str
    body: Body
    encoding: str


class Ingest:
    def __init__(self, settings: IngestSettings, *, pool: Pool, redis: RedisLink, master_key: str) -> None:
        self.settings = settings
        self.pool = pool
        self.redis = redis
        self.door = Door(settings, pool=pool, redis=redis, master_key=master_key)
        self.stage = Stage()
        self._backpressure = Backpressure(settings, pool)
        # Half for what arrives, half for what it expands to. Who has room in the second waits for nothing in the first,
        # so no two can wait for each other.
        self._arriving = Room(max_bytes=settings.buffer_bytes // 2)
        self._expanded = Room(max_bytes=settings.buffer_bytes // 2)
        self._turns = Turns()

    async def close(self) -> None:
        await self.door.close()
        self.stage.close()

    async def push_batch(self, request: Request, kind: Kind, route: Route) -> Answer:
        """Stories or chapters: check, and queue what is acceptable."""

        async def handle(push: Push) -> Answer:
            bound = decompression.bound(push.body.content, push.encoding, max_bytes=route.max_bytes)
            async with self._expanded.held(bound, wait_seconds=self.settings.body_seconds) as hold:
                opened, sha256, size = await self.stage.run(
                    lambda: _open(push, route.max_bytes), size_bytes=len(push.body.content) + bound
                )
                await hold.shrink(size)
                if not push.visitor.key.may_use(opened.source):
                    raise PermissionDenied(f"This key may not push to the source {opened.source}.")
                identity = self.identity(push, opened.source, kind.job_type, sha256)

                async def checked() -> tuple[NewRequest, accepting.Write]:
                    return await self._checked(push, kind, opened, sha256, size)

                return await self.once(push, identity, size=size, prepare=checked)

        return await self.receive(request, route, handle)

    async def receive(self, request: Request, route: Route, handle: Callable[[Push], Awaitable[Answer]]) -> Answer:
        """Let a signed request with a body in, and hold the body while it is handled."""
        await self.door.meet(request)
        signed = headers.signed(request.headers)
        request_id = headers.request_id(request.headers)
        idempotency_key = headers.idempotency_key(request.headers)
        encoding = decompression.encoding_of(request.headers.get("content-encoding"))
        headers.check_timestamp(signed.timestamp, now=time.time())
        if route.fills_queue:
            await self._backpressure.check()
        async with self._body(request, max_bytes=route.max_bytes) as body:
            visitor = await self.door.verify(request, signed, body, permission=route.permission)
            await body.hold.trust()
            return await handle(
                Push(
                    visitor=visitor,
                    request_id=request_id,
                    idempotency_key=idempotency_key,
                    body=body,
                    encoding=encoding,
                )
            )

    async def once(
        self,
        push: Push,
        identity: Identity,
        *,
        size: int,
        prepare: Callable[[], Awaitable[tuple[NewRequest, accepting.Write]]],
    ) -> Answer:
        """The earlier answer to this push; else check nonce and quotas, prepare what to write, and write it."""
        key, signed = push.visitor.key, push.visitor.signed
        nonce = nonces.fingerprint(key.key_id, signed.nonce)
        async with self._turns.turn((identity.source, identity.job_type, identity.idempotency_key)):
            is_replay = await nonces.is_remembered(self.redis, nonce)
            async with self.pool.reading() as conn:
                earlier = await accepting.earlier_answer(conn, identity)
                is_replay = is_replay or await nonces.is_taken(conn, nonce)
            if earlier is not None:
                BATCHES.labels(identity.job_type, "replayed").inc()
                return earlier
            if is_replay:
                raise NonceReplay
            limit = Limit(requests=self.settings.requests_per_minute, bytes=self.settings.bytes_per_minute)
            await self.door.limit_key(f"push:{key.family}", limit, size=size)
            new, write = await prepare()
            answer, is_new = await accepting.accept(self.pool, new, identity, nonce=nonce, write=write)
        if is_new:
            await self._note(push, new, nonce, size=size)
        return answer

    async def enter(self, request: Request) -> Visitor:
        """Let in a signed request that only asks for something."""
        await self.door.meet(request)
        signed = headers.signed(request.headers)
        if headers.REQUEST_ID in request.headers:
            headers.request_id(request.headers)
        headers.check_timestamp(signed.timestamp, now=time.time())
        async with self._body(request, max_bytes=MAX_QUESTION_BYTES) as body:
            visitor = await self.door.verify(request, signed, body, permission=None)
        nonce = nonces.fingerprint(signed.key_id, signed.nonce)
        async with self.pool.reading() as conn:
            if await nonces.is_taken(conn, nonce):
                raise NonceReplay
        limit = Limit(requests=self.settings.requests_per_minute * READS_PER_PUSH)
        await self.door.limit_key(f"read:{visitor.key.family}", limit)

        async def take(conn: Connection) -> None:
            await nonces.take(conn, nonce, signed.key_id)

        try:
            await self.pool.transaction(take)
        except nonces.NonceUsed:
            raise NonceReplay from None
        return visitor

    def _body(self, request: Request, *, max_bytes: int) -> AbstractAsyncContextManager[Body]:
        return reading.body(
            request,
            self._arriving,
            max_bytes=max_bytes,
            seconds=self.settings.body_seconds,
            owner=address_of(request),
        )

    def identity(self, push: Push, source: str, job_type: str, sha256: bytes) -> Identity:
        return Identity(
            source=source,
            job_type=job_type,
            idempotency_key=push.idempotency_key,
            payload_sha256=sha256,
            retention_hours=self.settings.idempotency_hours,
        )

    async def _checked(
        self, push: Push, kind: Kind, opened: Envelope, sha256: bytes, size: int
    ) -> tuple[NewRequest, accepting.Write]:
        examined = await self.stage.run(lambda: batch.examine(opened, kind, now=datetime.now(UTC)), size_bytes=size)
        ITEMS.labels(kind.job_type, "rejected").inc(len(examined.errors))
        if not examined.candidates:
            BATCHES.labels(kind.job_type, "rejected").inc()
            raise NothingAccepted(push.request_id, examined.errors, examined.warnings)
        async with self.pool.reading() as conn:
            standing = await standing_items.find(conn, examined.source, examined.candidates)
        checked = await self.stage.run(lambda: batch.pack(examined, kind, standing=standing), size_bytes=size)
        ITEMS.labels(kind.job_type, "standing").inc(len(checked.standing))
        new = NewRequest(
            request_id=push.request_id,
            source=opened.source,
            job_type=kind.job_type,
            idempotency_key=push.idempotency_key,
            total_items=checked.total,
            accepted_items=checked.accepted,
            payload_sha256=sha256,
            response=answers.accepted(
                push.request_id, accepted=checked.accepted, rejected=checked.errors, warnings=checked.warnings
            ),
            key_id=push.visitor.key.key_id,
            done_items=len(checked.standing),
        )

        async def write(conn: Connection) -> None:
            await ingest_jobs.enqueue(
                conn,
                checked.blobs,
                job_type=kind.job_type,
                source=opened.source,
                request_id=push.request_id,
                idempotency_key=push.idempotency_key,
                done=[(item.index, item.external_ref, item.fingerprint) for item in checked.standing],
            )

        return new, write

    async def _note(self, push: Push, new: NewRequest, nonce: bytes, *, size: int) -> None:
        """What others want to know of a batch that was accepted. Nothing here may fail it."""
        await nonces.remember(self.redis, nonce)
        if new.done_items < new.accepted_items:
            await wakeups.ring(self.redis, new.job_type)
        self.door.note_use(push.visitor.key)
        ITEMS.labels(new.job_type, "accepted").inc(new.accepted_items)
        BATCHES.labels(new.job_type, "accepted").inc()
        BYTES.labels(new.job_type).inc(size)
        log.info(
            "ingest.accepted",
            ingest_request_id=new.request_id,
            key_id=new.key_id,
            source=new.source,
            job_type=new.job_type,
            accepted=new.accepted_items,
            rejected=new.total_items - new.accepted_items,
            body_bytes=size,
        )


def _open(push: Push, max_bytes: int) -> tuple[Envelope, bytes, int]:
    payload = decompression.expand(push.body.content, push.encoding, max_bytes=max_bytes)
    sha256 = bytes.fromhex(push.body.sha256) if push.encoding == "identity" else hashlib.sha256(payload).digest()
    return envelope.read(payload), sha256, len(payload)
