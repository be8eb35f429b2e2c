"""What a crawler can learn of a batch after it was accepted."""

import base64
import uuid
from urllib.parse import quote, unquote

import pytest

from schema.connection import Connection
from tests.ingest.client import STORIES, Crawler, chapter, story
from tests.ingest.conftest import MakeCrawler

REQUESTS = "/wp-json/novel/v1/ingest/requests"


def set_job(conn: Connection, index: int, *, status: int, **columns: object) -> None:
    """What a worker would write."""
    changes = {"status": status} | columns
    conn.execute(
        f"UPDATE wp_novel_ingest_jobs SET {', '.join(f'{name} = %s' for name in changes)} WHERE item_index = %s",
        (*changes.values(), index),
    )


def test_the_state_of_a_request_has_what_the_specification_shows(crawler: Crawler) -> None:
    pushed = crawler.push(chapter(1), chapter(2, slug="X"), chapter(3)).json()
    state = crawler.get(f"{REQUESTS}/{pushed['request_id']}")
    assert state.status == 200
    assert state.headers["cache-control"] == "no-store"
    shown = state.json()
    assert shown.pop("created_at") == shown["updated_at"]
    assert shown.pop("updated_at").endswith("Z")
    assert shown == {
        "request_id": pushed["request_id"],
        "source": "truyen-a",
        "job_type": "chapters_bulk",
        "status": "queued",
        "total_items": 3,
        "accepted_items": 2,
        "rejected_items": 1,
        "processed_items": 0,
        "failed_items": 0,
        "last_error": None,
    }


@pytest.mark.parametrize(
    ("number", "status"), list(enumerate(("queued", "processing", "completed", "partially_failed", "failed")))
)
def test_each_status_has_its_name(crawler: Crawler, conn: Connection, number: int, status: str) -> None:
    request_id = crawler.push(chapter(1)).json()["request_id"]
    conn.execute("UPDATE wp_novel_ingest_requests SET status = %s, processed_items = 1", (number,))
    shown = crawler.get(f"{REQUESTS}/{request_id}").json()
    assert (shown["status"], shown["processed_items"]) == (status, 1)


def test_a_request_id_may_be_written_in_capitals(crawler: Crawler) -> None:
    request_id = str(uuid.uuid4())
    pushed = crawler.push(chapter(1), X_Novel_Request_Id=request_id.upper())
    assert pushed.json()["request_id"] == request_id
    assert crawler.get(f"{REQUESTS}/{request_id.upper()}").json()["request_id"] == request_id


@pytest.mark.parametrize("request_id", [str(uuid.UUID(int=7)), "x", "1%20OR%201", "%00", "é"])
def test_an_unknown_request_is_not_found(crawler: Crawler, request_id: str) -> None:
    path = f"{REQUESTS}/{unquote(request_id)}"
    answer = crawler.send("GET", quote(path), None, crawler.headers("GET", path))
    assert (answer.status, answer.json()["code"]) == (404, "not_found")


def test_each_item_says_what_became_of_it_and_whether_a_retry_can_help(crawler: Crawler, conn: Connection) -> None:
    items = [chapter(1, source_chapter_id=None), *(chapter(number) for number in range(2, 8)), chapter(8, slug="X")]
    request_id = crawler.push(*items).json()["request_id"]
    set_job(conn, 1, status=1, attempts=1)
    set_job(conn, 2, status=2, attempts=1)
    set_job(conn, 3, status=2, is_stale=1)
    set_job(conn, 4, status=3, attempts=5, error_code="story_not_found", last_error="There is no story s1.")
    set_job(conn, 5, status=4, attempts=5, error_code="slug_conflict", last_error="The slug is taken.")
    set_job(conn, 6, status=4, attempts=5, error_code="database_error")
    page = crawler.get(f"{REQUESTS}/{request_id}/items").json()
    assert (page["next_cursor"], page["has_more"]) == (None, False)
    shown = [
        (item["index"], item["external_id"], item["status"], item["error_code"], item["can_retry"])
        for item in page["items"]
    ]
    assert shown == [
        (0, "s1#1.00", "queued", None, False),
        (1, "s1/c2", "processing", None, False),
        (2, "s1/c3", "completed", None, False),
        (3, "s1/c4", "stale", None, False),
        (4, "s1/c5", "failed", "story_not_found", True),
        (5, "s1/c6", "dead_letter", "slug_conflict", False),
        (6, "s1/c7", "dead_letter", "database_error", True),
    ]
    assert page["items"][4]["message"] == "There is no story s1."
    assert page["items"][4]["attempts"] == 5


def test_items_of_stories_go_by_their_source_id(crawler: Crawler) -> None:
    request_id = crawler.push(story(1), story(2), path=STORIES).json()["request_id"]
    page = crawler.get(f"{REQUESTS}/{request_id}/items").json()
    assert [item["external_id"] for item in page["items"]] == ["s1", "s2"]


def test_pages_of_items_follow_one_another_without_gaps(crawler: Crawler) -> None:
    items = [chapter(number, slug="X" if number % 7 == 0 else "a") for number in range(300)]
    request_id = crawler.push(*items).json()["request_id"]
    found: list[int] = []
    query = "?limit=100"
    pages = 0
    while query:
        page = crawler.get(f"{REQUESTS}/{request_id}/items", query).json()
        pages += 1
        found += [item["index"] for item in page["items"]]
        assert page["has_more"] == (page["next_cursor"] is not None)
        query = f"?limit=100&cursor={page['next_cursor']}" if page["next_cursor"] else ""
    assert found == [number for number in range(300) if number % 7]
    assert pages == 3


@pytest.mark.parametrize(
    "cursor", ["x", "%20", "aXRlbTo", base64.b64encode(b"story:1").decode().rstrip("="), "aXRlbTotMQ", "9" * 500]
)
def test_a_cursor_that_we_did_not_give_is_refused(crawler: Crawler, cursor: str) -> None:
    request_id = crawler.push(chapter(1)).json()["request_id"]
    answer = crawler.get(f"{REQUESTS}/{request_id}/items", f"?cursor={cursor}")
    assert (answer.status, answer.json()["code"]) == (400, "invalid_cursor")


@pytest.mark.parametrize("limit", ["0", "301", "-1", "x", "1.5", "", "٣", "99999999999999999999"])
def test_a_limit_out_of_bounds_is_refused(crawler: Crawler, limit: str) -> None:
    request_id = crawler.push(chapter(1)).json()["request_id"]
    answer = crawler.get(f"{REQUESTS}/{request_id}/items", f"?limit={quote(limit)}")
    assert (answer.status, answer.json()["code"]) == (400, "invalid_filter")


def test_a_key_sees_only_requests_of_its_sources(make_crawler: MakeCrawler) -> None:
    of_a, of_b, of_all = make_crawler(sources=("a",)), make_crawler(sources=("b",)), make_crawler()
    request_id = of_a.push(chapter(1), source="a").json()["request_id"]
    for path in (f"{REQUESTS}/{request_id}", f"{REQUESTS}/{request_id}/items"):
        assert of_a.get(path).status == 200
        assert of_all.get(path).status == 200
        assert of_b.get(path).status == 404
