"""The queue in the simplest way: lists of items, units that wait or are held, and what has to become of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schema.connection import Connection, Row
from store import ingest_requests
from store.jobs import COMPLETED, DEAD, QUEUED, Verdict

_READY = """
    SELECT payload_blob_id, first_item, last_item, items, payload_bytes, attempts, crashes, waiting_for,
        ROUND(GREATEST(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), next_run_at), 0) / 50)
    FROM wp_novel_ingest_ready ORDER BY payload_blob_id, first_item
"""
_LEASES = """
    SELECT payload_blob_id, first_item, last_item, items, payload_bytes, attempts, crashes, worker_id
    FROM wp_novel_ingest_leases ORDER BY payload_blob_id, first_item
"""
_JOBS = """
    SELECT payload_blob_id, item_index, status, is_stale, attempts, crashes, error_code
    FROM wp_novel_ingest_jobs ORDER BY id
"""
_REQUESTS = """
    SELECT request_id, status, processed_items, failed_items, last_error FROM wp_novel_ingest_requests ORDER BY id
"""
# Those that no item needs any more.
_EXPIRING = """
    SELECT id FROM wp_novel_ingest_payload_blobs WHERE expires_at < UTC_TIMESTAMP() + INTERVAL 2 HOUR ORDER BY id
"""

Key = tuple[int, int]
"""Of a unit: its blob and first item. No two that live at a time have the same."""


@dataclass(eq=False)
class Item:
    request: "Request"
    blob_id: int
    index: int
    bytes: int
    status: int = QUEUED
    is_stale: bool = False
    attempts: int = 0
    crashes: int = 0
    code: str | None = None

    @property
    def row(self) -> tuple[Any, ...]:
        return self.blob_id, self.index, self.status, int(self.is_stale), self.attempts, self.crashes, self.code


@dataclass(eq=False)
class Request:
    id: str
    source: str
    items: list[Item] = field(default_factory=list)
    is_begun: bool = False
    last_error: str | None = None

    def said_last(self, message: str | None) -> None:
        """An error is told as long as something has failed: a replay may have mended all of it."""
        has_failed = any(item.status not in (QUEUED, COMPLETED) for item in self.items)
        self.last_error = (message or self.last_error) if has_failed else None

    @property
    def row(self) -> tuple[Any, ...]:
        processed = sum(item.status == COMPLETED for item in self.items)
        failed = sum(item.status not in (QUEUED, COMPLETED) for item in self.items)
        if processed + failed == len(self.items):
            status = "partially_failed" if processed and failed else "completed" if processed else "failed"
        else:
            status = "processing" if self.is_begun else "queued"
        return self.id, ingest_requests.STATUSES.index(status), processed, failed, self.last_error


@dataclass(eq=False)
class Unit:
    items: list[Item]
    attempts: int = 0
    crashes: int = 0
    due_in: float = 0.0
    """Seconds; not more than 0 if it is due."""
    waiting_for: str | None = None

    @property
    def key(self) -> Key:
        return self.items[0].blob_id, self.items[0].index

    @property
    def source(self) -> str:
        return self.items[0].request.source

    @property
    def row(self) -> tuple[Any, ...]:
        size = sum(item.bytes for item in self.items)
        return (*self.key, self.items[-1].index, len(self.items), size, self.attempts, self.crashes)


@dataclass(frozen=True)
class Rows:
    """What the tables say."""

    ready: list[Row]
    leases: list[Row]
    items: list[Row]
    requests: list[Row]
    expiring: list[Row]


def stored(conn: Connection) -> Rows:
    return Rows(*(conn.fetch_all(sql) for sql in (_READY, _LEASES, _JOBS, _REQUESTS, _EXPIRING)))


class Queue:
    def __init__(self, *, max_crashes: int) -> None:
        self.max_crashes = max_crashes
        self.requests: list[Request] = []
        self.blobs: dict[int, list[Item]] = {}
        self.ready: dict[Key, Unit] = {}
        self.leases: dict[Key, tuple[int, Unit]] = {}
        """With the worker that holds it."""
        self.stories: set[tuple[str, str]] = set()

    def items(self) -> list[Item]:
        return [item for request in self.requests for item in request.items]

    def rows(self) -> Rows:
        """What the tables have to say."""
        ready = [self.ready[key] for key in sorted(self.ready)]
        leases = [self.leases[key] for key in sorted(self.leases)]
        return Rows(
            [(*unit.row, unit.waiting_for, round(max(unit.due_in, 0) / 50)) for unit in ready],
            [(*unit.row, worker_id) for worker_id, unit in leases],
            [item.row for item in self.items()],
            [request.row for request in self.requests],
            [
                (blob_id,)
                for blob_id, items in sorted(self.blobs.items())
                if all(item.status == COMPLETED for item in items)
            ],
        )

    def held_by(self, worker_id: int) -> dict[Key, Unit]:
        return {key: unit for key, (holder, unit) in self.leases.items() if holder == worker_id}

    def due_sources(self) -> list[str]:
        return sorted({unit.source for unit in self.ready.values() if unit.due_in <= 0})

    def enqueue(self, request: Request) -> None:
        self.requests.append(request)
        for item in request.items:
            self.blobs.setdefault(item.blob_id, []).append(item)
        for blob_id in {item.blob_id for item in request.items}:
            self._wait(Unit(self.blobs[blob_id]))

    def claim(self, keys: Iterable[Key], worker_id: int) -> None:
        for key in keys:
            unit = self.ready.pop(key)
            self.leases[key] = worker_id, unit
            unit.waiting_for = None  # it is due, whatever it waits for, and stays so if it is given back
            unit.items[0].request.is_begun = True

    def give_back(self, keys: Iterable[Key]) -> None:
        for key in keys:
            _, unit = self.leases.pop(key)
            self._wait(unit)

    def end(self, keys: Iterable[Key], verdicts: Sequence[Verdict]) -> None:
        """The leases end, and each item has its verdict; those that wait become units of their own."""
        held = {key: self.leases.pop(key)[1] for key in keys}
        said = {(verdict.job.unit.blob_id, verdict.job.index): verdict for verdict in verdicts}
        for unit in held.values():
            before: Unit | None = None
            for item in unit.items:
                verdict = said[item.blob_id, item.index]
                item.status, item.is_stale, item.code = verdict.status, verdict.is_stale, verdict.code
                item.attempts = unit.attempts + 1
                if verdict.status != COMPLETED:
                    item.crashes = unit.crashes
                if verdict.status != QUEUED:
                    item.request.said_last(verdict.message)
                    before = None
                elif before is not None and before.waiting_for == verdict.waiting_for is not None:
                    before.items.append(item)
                else:
                    before = Unit([item], item.attempts, unit.crashes, verdict.delay_seconds, verdict.waiting_for)
                    self._wait(before)

    def crash(self, worker_id: int) -> tuple[int, int]:
        """What a dead worker held comes back; returns how many units, and how many items became dead letters."""
        held, dead = self.held_by(worker_id), 0
        for key, unit in held.items():
            del self.leases[key]
            if len(unit.items) > 1 and unit.crashes:
                middle = len(unit.items) // 2
                self._wait(Unit(unit.items[:middle], unit.attempts, 1))
                self._wait(Unit(unit.items[middle:], unit.attempts, 1))
            elif len(unit.items) == 1 and unit.crashes + 1 >= self.max_crashes:
                (item,) = unit.items
                item.status, item.attempts, item.crashes = DEAD, unit.attempts, unit.crashes + 1
                item.code = "worker_crashed"
                item.request.last_error = f"{item.crashes} workers died while they worked on this item."
                dead += 1
            else:
                self._wait(Unit(unit.items, unit.attempts, unit.crashes + 1))
        return len(held), dead

    def release(self, source: str, ref: str) -> int:
        released = [unit for unit in self.ready.values() if (unit.source, unit.waiting_for) == (source, ref)]
        if (source, ref) not in self.stories:
            return 0
        for unit in released:
            unit.due_in, unit.waiting_for = min(unit.due_in, 0.0), None
        return len(released)

    def replay(self, items: Sequence[Item]) -> None:
        """Queue items again: a unit of its own for each run of neighbours in a blob."""
        before: Unit | None = None
        for item in items:
            item.status, item.is_stale, item.attempts, item.crashes = QUEUED, False, 0, 0
            blob = self.blobs[item.blob_id]
            is_next = before is not None and blob.index(item) and blob[blob.index(item) - 1] is before.items[-1]
            if before is not None and is_next:
                before.items.append(item)
            else:
                before = Unit([item])
                self._wait(before)

    def pass_time(self, seconds: float) -> None:
        for unit in (*self.ready.values(), *(unit for _, unit in self.leases.values())):
            unit.due_in -= seconds

    def _wait(self, unit: Unit) -> None:
        assert unit.key not in self.ready
        self.ready[unit.key] = unit
