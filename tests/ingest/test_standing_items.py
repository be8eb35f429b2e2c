"""What is stored already just as it is pushed: done at the door, and what differs in anything is not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import standing_items
from schema.connection import Connection
from store.chapters import ChapterRow
from store.jobs import Job
from store.payloads import ChapterFrame
from store.standing_chapters import Standing
from store.units import Unit
from tests.conftest import NovelCommand
from tests.ingest.checked import chapter_frame
from tests.ingest.client import STORIES, Crawler, chapter, story
from worker import chapter_plan

REQUESTS = "/wp-json/novel/v1/ingest/requests"
NOW = datetime(2026, 5, 1)


def work(novel: NovelCommand, environ: dict[str, str]) -> None:
    for kind in ("stories", "chapters"):
        done = novel("ingest-worker", kind, "--drain", **environ)
        assert done.returncode == 0, done.stderr


def statuses(conn: Connection, request_id: str) -> list[int]:
    rows = conn.fetch_all(
        "SELECT status FROM wp_novel_ingest_jobs WHERE request_id = %s ORDER BY item_index", (request_id,)
    )
    return [status for (status,) in rows]


def count(conn: Connection, table: str) -> int:
    return int(conn.fetch_all(f"SELECT COUNT(*) FROM wp_novel_{table}")[0][0])


@pytest.fixture
def stored(crawler: Crawler, novel: NovelCommand, environ: dict[str, str]) -> list[dict[str, Any]]:
    """Ten chapters that are in the tables; the last has no id of its source's."""
    items = [chapter(number, published_at="2026-02-01T00:00:00Z") for number in range(1, 10)]
    items.append(chapter(10, source_chapter_id=None))
    crawler.push(story(1), path=STORIES)
    assert crawler.push(*items).status == 202
    work(novel, environ)
    return items


def test_what_has_not_changed_is_done_at_once(crawler: Crawler, conn: Connection, stored: list[dict[str, Any]]) -> None:
    blobs, events = count(conn, "ingest_payload_blobs"), count(conn, "events")
    answer = crawler.push(*stored)
    assert (answer.status, answer.json()["accepted_count"]) == (202, 10)
    request_id = answer.json()["request_id"]
    state = crawler.get(f"{REQUESTS}/{request_id}").json()
    assert (state["status"], state["processed_items"], state["failed_items"]) == ("completed", 10, 0)
    items = crawler.get(f"{REQUESTS}/{request_id}/items").json()["items"]
    assert {item["status"] for item in items} == {"completed"}
    assert (count(conn, "ingest_ready"), count(conn, "ingest_payload_blobs"), count(conn, "events")) == (
        *(0, blobs),
        events,
    )


def test_what_differs_in_anything_is_queued(
    crawler: Crawler,
    conn: Connection,
    stored: list[dict[str, Any]],
    novel: NovelCommand,
    environ: dict[str, str],
) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"title": "Chương 2 "},  # the same once it is cleaned
        {"title": "chương 3"},
        {"slug": "khac-4"},
        {"content_raw": "Nội dung khác."},
        {"updated_at_source": "2026-02-21T08:05:00.5Z"},
        {"is_published": False},
        {"published_at": "2026-02-01T00:00:01Z"},
        {"chapter_no": 9.5, "slug": "chuong-9-5"},
        {},
    ]
    pushed = [item | change for item, change in zip(stored, changes, strict=True)]
    request_id = crawler.push(*pushed).json()["request_id"]
    assert statuses(conn, request_id) == [2, 2, 0, 0, 0, 0, 0, 0, 0, 2]
    state = crawler.get(f"{REQUESTS}/{request_id}").json()
    assert (state["status"], state["processed_items"]) == ("queued", 3)
    work(novel, environ)
    state = crawler.get(f"{REQUESTS}/{request_id}").json()
    assert (state["status"], state["processed_items"], state["failed_items"]) == ("completed", 10, 0)
    again = crawler.push(*pushed).json()["request_id"]
    assert statuses(conn, again) == [2] * 10


def test_deleted_chapters_and_those_of_others_are_no_reason_to_skip(
    crawler: Crawler, conn: Connection, stored: list[dict[str, Any]]
) -> None:
    other = crawler.push(*stored, source="truyen-b").json()["request_id"]
    assert set(statuses(conn, other)) == {0}
    conn.execute("UPDATE wp_novel_chapters SET deleted_at = UTC_TIMESTAMP() WHERE chapter_no <= 5")
    again = crawler.push(*stored).json()["request_id"]
    assert statuses(conn, again) == [0] * 5 + [2] * 5
    deletion = {"source_story_id": "s1", "source_chapter_id": "c9", "deleted": True}
    deleted = crawler.push(deletion | {"updated_at_source": "2026-02-21T08:05:00Z"}).json()["request_id"]
    assert statuses(conn, deleted) == [0]


def test_a_repeated_request_is_answered_as_before(crawler: Crawler, stored: list[dict[str, Any]]) -> None:
    first = crawler.push(*stored, Idempotency_Key="again")
    second = crawler.push(*stored, Idempotency_Key="again")
    assert (first.status, first.body) == (second.status, second.body)


FRAME = chapter_frame(chapter(1, published_at="2026-02-01T00:00:00Z"))


def row_of(frame: ChapterFrame) -> ChapterRow:
    assert frame.content is not None
    assert frame.chapter_no is not None
    return ChapterRow(
        id=7,
        story_id=1,
        ref=frame.source_chapter_id,
        number=frame.chapter_no,
        slug=frame.slug,
        title=frame.title,
        is_published=True,
        word_count=4,
        published_at=datetime(2026, 2, 1),
        at=frame.updated_at_source.astimezone(UTC).replace(tzinfo=None),
        is_deleted=False,
        sha256=frame.content.sha256,
    )


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "number": st.sampled_from([Decimal("1.00"), Decimal(2)]),
            "slug": st.sampled_from(["chuong-1", "khac"]),
            "title": st.sampled_from(["Chương 1", "chương 1"]),
            "is_published": st.booleans(),
            "published_at": st.sampled_from([datetime(2026, 2, 1), datetime(2026, 2, 2)]),
            "at": st.integers(-1, 1).map(lambda s: datetime(2026, 2, 21, 8, 5) + timedelta(microseconds=s)),
            "sha256": st.sampled_from([FRAME.content.sha256 if FRAME.content else b"", b"x" * 32]),
        },
    )
)
def test_the_door_finds_the_same_as_a_worker_that_changes_nothing(stored: dict[str, Any]) -> None:
    row = replace(row_of(FRAME), **stored)
    at = datetime(2026, 1, 1)
    unit = Unit(1, "chapters_bulk", "a", "r", 1, 0, 0, 1, 1, 0, 0, at, at)
    item = chapter_plan.Item(Job(1, unit, 0, 1, FRAME), 1, FRAME)
    plan = chapter_plan.plan([item], [row], now=NOW, lowest={}, count_words=lambda _: 4)
    known = (row.number, row.slug, row.title, row.is_published, row.published_at, row.at, row.sha256)
    assert standing_items.is_same(FRAME, Standing(*known)) == (bool(plan.unchanged) and not plan.refreshed)
