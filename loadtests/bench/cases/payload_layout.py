"""How the queue keeps a checked batch: one blob per batch and slim job rows, or the JSON of each item in its row.

Both write the same 300 chapters in one transaction, through the same pool. Making the payload is measured in neither.
"""

import contextlib
import functools
import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Protocol

from ingest import batch, envelope
from ingest.batch import Checked
from ingest.envelope import Envelope
from loadtests.bench import batches, queue_tables
from loadtests.bench.case import Bench, Case, Reset, Side, Work
from store import ingest_jobs, payloads, pool
from store.connection import Connection


class Write(Protocol):
    def __call__(self, conn: Connection, request_id: str) -> Awaitable[None]: ...


INSERT_INLINE_JOBS = """
    INSERT INTO wp_novel_ingest_jobs
        (job_type, source, request_id, idempotency_key, external_ref, payload_inline_json, payload_hash,
         payload_size_bytes, payload_encoding, payload_storage, item_index, next_run_at, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 'none', 'inline', %s, UTC_TIMESTAMP(), UTC_TIMESTAMP(), UTC_TIMESTAMP())
"""


@functools.cache
def _opened() -> Envelope:
    (prepared,) = batches.prepared(batches.texts(), batches.JSON, count=1)
    return envelope.read(prepared.body)


@functools.cache
def _checked() -> Checked:
    kind = batch.chapters_kind(content_encoding="gzip")
    return batch.check(_opened(), kind, now=datetime.now(UTC))


def _writing(make: Callable[[], Write]) -> Side:
    """A side whose work is one batch, as a request of its own, in a transaction."""

    @contextlib.asynccontextmanager
    async def side(bench: Bench) -> AsyncIterator[Work]:
        write = make()
        connections = pool.from_settings(bench.settings.database)

        async def work() -> int:
            request_id = str(uuid.uuid4())
            await connections.transaction(lambda conn: write(conn, request_id))
            return batches.CHAPTERS

        try:
            yield work
        finally:
            await connections.close()

    return side


def blob_per_batch() -> Write:
    checked = _checked()

    async def write(conn: Connection, request_id: str) -> None:
        await ingest_jobs.enqueue(
            conn,
            checked.blobs,
            job_type=payloads.CHAPTERS,
            source=batches.SOURCE,
            request_id=request_id,
            idempotency_key=request_id,
        )

    return write


def json_per_item() -> Write:
    items = [bytes(raw) for raw in _opened().items]
    refs = [item.external_ref for blob, _ in _checked().blobs for item in blob.items]
    ready = [
        # As bytes, which is twice as fast as text: the other way gets its best, too.
        (ref, item, hashlib.sha256(item).digest(), len(item), index)
        for index, (ref, item) in enumerate(zip(refs, items, strict=True))
    ]

    async def write(conn: Connection, request_id: str) -> None:
        common = (payloads.CHAPTERS, batches.SOURCE, request_id, request_id)
        await conn.execute_many(INSERT_INLINE_JOBS, [common + row for row in ready])

    return write


@contextlib.contextmanager
def stage(bench: Bench) -> Iterator[Reset]:
    with queue_tables.owned(bench) as reset:
        yield reset


CASE = Case(
    name="ingest.payload_layout",
    title="A checked batch as one blob and slim job rows against the JSON of each item in its row",
    unit="items",
    ours=_writing(blob_per_batch),
    bare=_writing(json_per_item),
    target=1.0,
    needs_catalogue=False,
    stage=stage,
)
