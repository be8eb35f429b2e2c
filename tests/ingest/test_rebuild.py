"""`rebuild-stats`: stories that somebody wants counted again."""

import json
from typing import Any

import pytest

from ingest.routes import REBUILD_STATS
from schema.connection import Connection
from tests.ingest.client import Crawler
from tests.ingest.conftest import MakeCrawler
from tests.processes import Answer


def make_stories(conn: Connection, **sources: int) -> dict[str, list[int]]:
    """So many stories of each source; their ids."""
    made: dict[str, list[int]] = {}
    for source, count in sources.items():
        for number in range(count):
            conn.execute(
                "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)"
                " VALUES (%s, %s, %s, 'T', UTC_TIMESTAMP(), UTC_TIMESTAMP())",
                (source, f"s{number}", f"slug-{number}"),
            )
        found = conn.fetch_all("SELECT id FROM wp_novel_stories WHERE source = %s ORDER BY id", (source,))
        made[source] = [row[0] for row in found]
    return made


def rebuild(crawler: Crawler, story_ids: Any, **headers: str) -> Answer:
    return crawler.post(REBUILD_STATS, json.dumps({"story_ids": story_ids}).encode(), **headers)


def marked(conn: Connection) -> list[tuple[int, int]]:
    return conn.fetch_all("SELECT story_id, touch_count FROM wp_novel_story_recount_queue ORDER BY story_id")


def test_stories_are_marked_for_a_recount_and_missing_ones_are_named(crawler: Crawler, conn: Connection) -> None:
    ids = make_stories(conn, a=3)["a"]
    answer = rebuild(crawler, [ids[0], 999_999, ids[2], ids[0]])
    assert answer.status == 200, answer.body
    assert answer.json()["accepted_count"] == 3
    assert answer.json()["errors"] == [
        {"index": 1, "code": "story_not_found", "message": "There is no story 999999 that this key may use."}
    ]
    assert marked(conn) == [(ids[0], 1), (ids[2], 1)]
    state = crawler.get(f"/wp-json/novel/v1/ingest/requests/{answer.json()['request_id']}").json()
    assert (state["job_type"], state["status"], state["processed_items"]) == ("rebuild_stats", "completed", 3)


def test_ten_thousand_ids_are_taken_and_one_more_is_not(crawler: Crawler, conn: Connection) -> None:
    ids = make_stories(conn, a=50)["a"]
    many = (ids * 200)[:10_000]
    assert rebuild(crawler, many).status == 202
    assert [story for story, _ in marked(conn)] == ids
    assert rebuild(crawler, [*many, ids[0]]).status == 422


def test_a_repeated_request_marks_once(crawler: Crawler, conn: Connection) -> None:
    ids = make_stories(conn, a=2)["a"]
    first = rebuild(crawler, ids, Idempotency_Key="k")
    again = rebuild(crawler, ids, Idempotency_Key="k")
    assert (again.status, again.body) == (202, first.body)
    assert marked(conn) == [(ids[0], 1), (ids[1], 1)]
    assert rebuild(crawler, ids[:1], Idempotency_Key="k").status == 409
    assert rebuild(crawler, ids[:1]).status == 202
    assert marked(conn) == [(ids[0], 2), (ids[1], 1)]


def test_a_key_of_one_source_recounts_only_its_stories(make_crawler: MakeCrawler, conn: Connection) -> None:
    ids = make_stories(conn, a=1, b=1)
    crawler, other = make_crawler(sources=("a",)), make_crawler(sources=("b",))
    answer = rebuild(crawler, ids["a"] + ids["b"])
    assert (answer.status, answer.json()["rejected_count"]) == (200, 1)
    assert marked(conn) == [(ids["a"][0], 1)]
    path = f"/wp-json/novel/v1/ingest/requests/{answer.json()['request_id']}"
    assert (crawler.get(path).status, other.get(path).status) == (200, 404)


def test_no_story_at_all_is_a_422(crawler: Crawler, conn: Connection) -> None:
    answer = rebuild(crawler, [1, 2])
    assert answer.status == 422
    assert answer.json()["error"]["code"] == "invalid_schema"
    assert answer.json()["rejected_count"] == 2
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_requests") == [(0,)]


@pytest.mark.parametrize(
    "story_ids", [None, "1", 1, {}, [], ["1"], [1.5], [0], [-1], [True], [None], [2**63], [[1]], [1, "x"]]
)
def test_anything_but_ids_is_refused(crawler: Crawler, conn: Connection, story_ids: Any) -> None:
    answer = rebuild(crawler, story_ids)
    assert (answer.status, answer.json()["code"]) == (422, "invalid_schema"), answer.body
    assert "story_ids" in answer.json()["message"]
    assert marked(conn) == []


@pytest.mark.parametrize(("body", "status"), [(b"", 400), (b"[1]", 422), (b"{}", 422), (b"{", 400)])
def test_a_body_of_another_form_is_refused(crawler: Crawler, body: bytes, status: int) -> None:
    answer = crawler.post(REBUILD_STATS, body)
    assert (answer.status, answer.json()["code"]) == (status, "invalid_schema")
