"""What a key may do: its permissions, and its sources."""

import json
import uuid

import pytest

from schema.connection import Connection
from store import api_keys
from tests.ingest.client import CHAPTERS, STORIES, batch, chapter, refusal, story
from tests.ingest.conftest import MakeCrawler, ServeWith, written
from tests.processes import Served

REBUILD_STATS = "/wp-json/novel/v1/ingest/rebuild-stats"
REQUESTS = "/wp-json/novel/v1/ingest/requests"
PERMISSION_DENIED = (403, "permission_denied")


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with()


PUSHES: dict[str, tuple[str, bytes]] = {
    "ingest:stories": (STORIES, batch(story())),
    "ingest:chapters": (CHAPTERS, batch(chapter())),
    "ingest:stats": (REBUILD_STATS, b'{"story_ids":[1]}'),
}


@pytest.mark.parametrize("permission", api_keys.PERMISSIONS)
def test_each_route_wants_its_own_permission(make_crawler: MakeCrawler, conn: Connection, permission: str) -> None:
    path, body = PUSHES[permission]
    lacking = make_crawler(*(other for other in api_keys.PERMISSIONS if other != permission))
    answer = lacking.post(path, body)
    assert refusal(answer) == PERMISSION_DENIED
    assert permission in answer.json()["message"]
    assert written(conn) == {}
    alone = make_crawler(permission)
    # There is no story 1 to count again: but that is told to who may ask for it.
    assert alone.post(path, body).status == (422 if permission == "ingest:stats" else 202)


def test_a_key_pushes_only_to_its_sources(make_crawler: MakeCrawler, conn: Connection) -> None:
    crawler = make_crawler(sources=("a", "truyện-b"))
    for source in ("b", "A", "a ", "truyện-c", "a,truyện-b"):
        assert refusal(crawler.push(chapter(), source=source)) in (PERMISSION_DENIED, (422, "invalid_schema")), source
    assert written(conn) == {}
    assert crawler.push(chapter(), source="a").status == 202
    assert crawler.push(chapter(), source="truyện-b").status == 202


def test_a_key_sees_only_the_requests_of_its_sources(make_crawler: MakeCrawler) -> None:
    of_a, of_b, of_all = make_crawler(sources=("a",)), make_crawler(sources=("b",)), make_crawler()
    path = f"{REQUESTS}/{of_a.push(chapter(), source='a').json()['request_id']}"
    nothing = f"{REQUESTS}/{uuid.uuid4()}"
    for end in ("", "/items"):
        assert of_a.get(path + end).status == 200
        assert of_all.get(path + end).status == 200
        assert of_b.get(path + end).body == of_b.get(nothing + end).body
        assert refusal(of_b.get(path + end)) == (404, "not_found")


def test_states_can_be_asked_for_with_any_permission(make_crawler: MakeCrawler) -> None:
    path = f"{REQUESTS}/{make_crawler('ingest:chapters').push(chapter()).json()['request_id']}"
    assert make_crawler("ingest:stats").get(path).status == 200


def make_story(conn: Connection, source: str) -> int:
    conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)"
        " VALUES (%s, 's1', %s, 'A', UTC_TIMESTAMP(), UTC_TIMESTAMP())",
        (source, f"a-{source}"),
    )
    return int(conn.fetch_all("SELECT LAST_INSERT_ID()")[0][0])


def test_a_key_has_only_stories_of_its_sources_counted_again(make_crawler: MakeCrawler, conn: Connection) -> None:
    mine, theirs = make_story(conn, "a"), make_story(conn, "b")
    crawler = make_crawler("ingest:stats", sources=("a",))
    answer = crawler.post(REBUILD_STATS, json.dumps({"story_ids": [theirs, mine]}).encode())
    assert (answer.status, answer.json()["accepted_count"]) == (200, 1)
    assert [(error["index"], error["code"]) for error in answer.json()["errors"]] == [(0, "story_not_found")]
    assert conn.fetch_all("SELECT story_id FROM wp_novel_story_recount_queue") == [(mine,)]
    state = f"{REQUESTS}/{answer.json()['request_id']}"
    assert crawler.get(state).status == 200
    assert make_crawler(sources=("a",)).get(state).status == 404  # another key's recount
