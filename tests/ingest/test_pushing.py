"""Batches in: what is accepted is in the queue, once; what is not says why."""

from schema.connection import Connection
from tests.ingest.client import STORIES, Crawler, chapter, story


def test_a_batch_of_chapters_is_queued(crawler: Crawler, conn: Connection) -> None:
    answer = crawler.push(*map(chapter, range(300)))
    assert answer.status == 202, answer.body
    assert answer.json()["accepted_count"] == 300
    rows = conn.fetch_all("SELECT COUNT(*), COUNT(DISTINCT external_ref) FROM wp_novel_ingest_jobs")
    assert rows == [(300, 300)]
    state = crawler.get(f"/wp-json/novel/v1/ingest/requests/{answer.json()['request_id']}")
    assert state.status == 200, state.body
    assert state.json()["status"] == "queued"
    items = crawler.get(f"/wp-json/novel/v1/ingest/requests/{answer.json()['request_id']}/items", "?limit=200")
    assert len(items.json()["items"]) == 200


def test_a_batch_of_stories_is_queued(crawler: Crawler, conn: Connection) -> None:
    answer = crawler.push(*map(story, range(3)), story(9, slug="X"), path=STORIES)
    assert answer.status == 200, answer.body
    assert answer.json()["errors"][0]["code"] == "invalid_slug"
