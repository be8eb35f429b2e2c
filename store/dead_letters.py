"""Dead letters: jobs that gave up, and which of them an operator wants queued again (`replays` does that)."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from schema.connection import Connection, Row
from store.ingest_jobs import STATUSES

MAX_LOST_SHOWN = 100

_FAILED: Final = STATUSES.index("failed")
_DEAD: Final = STATUSES.index("dead_letter")
_PAGE_ROWS = 2000
_BEGINNING = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs are to be queued again. Times are the database's, in UTC."""

    until: datetime
    """When the run began."""
    since: datetime | None = None
    job_type: str | None = None
    source: str | None = None
    error_code: str | None = None
    """With one, also jobs that failed at once with this code, for whoever has mended what it stands for."""
    request_id: str | None = None

    @property
    def statuses(self) -> tuple[int, ...]:
        return (_DEAD,) if self.error_code is None else (_DEAD, _FAILED)

    @property
    def filters(self) -> dict[str, str | None]:
        """What was asked for, as it is told."""
        return {
            "job_type": self.job_type,
            "since": f"{self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since else None,
            "source": self.source,
            "error_code": self.error_code,
            "request_id": self.request_id,
        }


@dataclass(frozen=True, slots=True)
class Group:
    job_type: str
    source: str
    status: str
    error_code: str | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A job whose payload is gone: only its crawler can bring it again."""

    job_type: str
    source: str
    request_id: str
    external_ref: str


@dataclass(slots=True)
class Found:
    """What matches."""

    job_ids: "array[int]" = field(default_factory=lambda: array("Q"))
    """In the order in which they were accepted, so that neighbours of a batch come together."""
    groups: Counter[Group] = field(default_factory=Counter)
    lost_groups: Counter[Group] = field(default_factory=Counter)
    lost: list[Lost] = field(default_factory=list)
    """At most MAX_LOST_SHOWN of them."""

    def add(self, row: Row, status: int) -> None:
        job_id, _, job_type, source, error_code, request_id, lost_ref = row
        group = Group(job_type, source, STATUSES[status], error_code)
        if lost_ref is None:
            self.job_ids.append(job_id)
            self.groups[group] += 1
            return
        self.lost_groups[group] += 1
        if len(self.lost) < MAX_LOST_SHOWN:
            self.lost.append(Lost(job_type, source, request_id, lost_ref))


_NOW = "SELECT UTC_TIMESTAMP()"


def now(conn: Connection) -> datetime:
    """The database's time, to the second, as jobs have it."""
    (time,) = conn.fetch_all(_NOW)[0]
    assert isinstance(time, datetime)
    return time


# KEY due, by force and in its order; PRIMARY of the blobs. The rest of the second at which the last page ended.
_SAME_SECOND = """
    SELECT j.id, j.next_run_at, j.job_type, j.source, j.error_code, j.request_id, IF(b.id IS NULL, j.external_ref, NULL)
    FROM wp_novel_ingest_jobs j FORCE INDEX (due)
    LEFT JOIN wp_novel_ingest_payload_blobs b ON b.id = j.payload_blob_id
    WHERE j.status = %s AND j.next_run_at = %s AND j.id > %s AND j.next_run_at <= %s
        AND (%s IS NULL OR j.job_type = %s) AND (%s IS NULL OR j.source = %s) AND (%s IS NULL OR j.error_code = %s)
    ORDER BY j.id LIMIT %s
"""
# KEY due, by force and in its order; PRIMARY of the blobs.
_LATER = """
    SELECT j.id, j.next_run_at, j.job_type, j.source, j.error_code, j.request_id, IF(b.id IS NULL, j.external_ref, NULL)
    FROM wp_novel_ingest_jobs j FORCE INDEX (due)
    LEFT JOIN wp_novel_ingest_payload_blobs b ON b.id = j.payload_blob_id
    WHERE j.status = %s AND j.next_run_at > %s AND j.next_run_at <= %s
        AND (%s IS NULL OR j.job_type = %s) AND (%s IS NULL OR j.source = %s) AND (%s IS NULL OR j.error_code = %s)
    ORDER BY j.next_run_at, j.id LIMIT %s
"""
# KEY by_request; the items of one request are few hundred at most. PRIMARY of the blobs.
_OF_REQUEST = """
    SELECT j.id, j.next_run_at, j.job_type, j.source, j.error_code, j.request_id, IF(b.id IS NULL, j.external_ref, NULL)
    FROM wp_novel_ingest_jobs j FORCE INDEX (by_request)
    LEFT JOIN wp_novel_ingest_payload_blobs b ON b.id = j.payload_blob_id
    WHERE j.request_id = %s AND j.status = %s AND j.next_run_at >= %s AND j.next_run_at <= %s
        AND (%s IS NULL OR j.job_type = %s) AND (%s IS NULL OR j.source = %s) AND (%s IS NULL OR j.error_code = %s)
    ORDER BY j.next_run_at, j.id
"""


def find(conn: Connection, wanted: Wanted, *, limit: int | None = None) -> Found:
    """What matches; of more than `limit` that can be queued again, those that died first, dead letters foremost."""
    found = Found()
    for status in wanted.statuses:
        for row in _matching(conn, wanted, status):
            if limit is not None and len(found.job_ids) >= limit:
                break
            found.add(row, status)
    found.job_ids = array("Q", sorted(found.job_ids))
    return found


def _matching(conn: Connection, wanted: Wanted, status: int) -> Iterator[Row]:
    """Those of one status, the longest dead first."""
    job_type, source, error_code = wanted.job_type, wanted.source, wanted.error_code
    filters = (job_type, job_type, source, source, error_code, error_code)
    time, last_id = wanted.since or _BEGINNING, 0
    if wanted.request_id is not None:
        yield from conn.fetch_all(_OF_REQUEST, (wanted.request_id, status, time, wanted.until, *filters))
        return
    while True:
        rows = conn.fetch_all(_SAME_SECOND, (status, time, last_id, wanted.until, *filters, _PAGE_ROWS))
        if not rows:
            rows = conn.fetch_all(_LATER, (status, time, wanted.until, *filters, _PAGE_ROWS))
        if not rows:
            return
        yield from rows
        last_id, time, *_ = rows[-1]
