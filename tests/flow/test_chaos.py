"""Workers that are killed and stopped while crawlers push: a short `make chaos`, and whether it would see a mistake."""

import secrets
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from loadtests.chaos import crew, feed, model, run, stage
from loadtests.chaos.run import Plan
from runtime.settings import Settings
from schema.connection import Connection, connect
from store import jobs, payloads, rescues, workers
from store.jobs import Job
from store.pool import Pool
from store.units import Unit
from worker import identity, verdicts
from worker.handler import TryAgain

STRIKES = 25

# Each of them is one thing gone wrong.
MISTAKES = (
    "UPDATE wp_novel_ingest_requests SET processed_items = processed_items + 1 ORDER BY id LIMIT 1",
    "UPDATE wp_novel_ingest_requests SET status = 1 ORDER BY id DESC LIMIT 1",
    "UPDATE wp_novel_ingest_jobs SET status = 0 ORDER BY id LIMIT 1",
    "UPDATE wp_novel_ingest_jobs SET is_stale = 1",
    "DELETE FROM wp_novel_ingest_jobs ORDER BY id LIMIT 1",
    "UPDATE wp_novel_ingest_jobs SET status = 2, error_code = NULL WHERE status = 3 LIMIT 1",
    "INSERT INTO wp_novel_story_recount_queue (story_id, dirty_since, next_run_at, updated_at) SELECT 1, d, d, d"
    " FROM (SELECT UTC_TIMESTAMP() AS d) now",
    "UPDATE wp_novel_stories SET title = CONCAT(title, '!') WHERE deleted_at IS NULL LIMIT 1",
    "UPDATE wp_novel_stories SET deleted_at = UTC_TIMESTAMP() WHERE deleted_at IS NULL LIMIT 1",
    "UPDATE wp_novel_stories SET source_microsecond = source_microsecond + 1 LIMIT 1",
    "UPDATE wp_novel_stories SET word_count = word_count + 1 LIMIT 1",
    "DELETE a FROM wp_novel_story_aliases a JOIN wp_novel_stories s ON s.id = a.story_id WHERE s.deleted_at IS NULL",
    "DELETE g FROM wp_novel_story_genres g JOIN wp_novel_stories s ON s.id = g.story_id WHERE s.deleted_at IS NULL",
    "DELETE FROM wp_novel_chapters WHERE deleted_at IS NULL LIMIT 1",
    "INSERT INTO wp_novel_chapters (story_id, chapter_no, slug, title, updated_at_source, source_microsecond,"
    " created_at, updated_at) SELECT story_id, -9, '~', title, updated_at_source, source_microsecond, created_at,"
    " updated_at FROM wp_novel_chapters LIMIT 1",
    "UPDATE wp_novel_chapters SET chapter_no = chapter_no + 0.25 WHERE deleted_at IS NULL LIMIT 1",
    "UPDATE wp_novel_chapters SET is_published = 1 - is_published WHERE deleted_at IS NULL LIMIT 1",
    "UPDATE wp_novel_chapter_content SET content_hash = REPEAT('x', 32)",
    "DELETE t FROM wp_novel_chapter_content t JOIN wp_novel_chapters c ON c.id = t.chapter_id"
    " WHERE c.deleted_at IS NULL",
    "UPDATE wp_novel_chapter_versions SET version = version + 1 ORDER BY version DESC LIMIT 1",
    "UPDATE wp_novel_chapter_versions v JOIN wp_novel_chapter_content t ON t.chapter_id = v.chapter_id"
    " SET v.content_raw = t.content_raw, v.content_hash = t.content_hash, v.content_size = t.content_size",
    "INSERT INTO wp_novel_events (event_type, story_id, chapter_id, created_at)"
    " SELECT event_type, story_id, chapter_id, created_at FROM wp_novel_events WHERE event_type = 'story.created'"
    " ORDER BY id LIMIT 1",
    "DELETE FROM wp_novel_events ORDER BY id LIMIT 1",
)


@pytest.fixture
def database(empty_conn: Connection, redis_url: str) -> Iterator[dict[str, str]]:
    """A database beside which the test makes its own, which is dropped in the end."""
    yield {"NOVEL_DATABASE_URL": empty_conn.address.url, "NOVEL_REDIS_URL": redis_url}
    empty_conn.execute(f"DROP DATABASE IF EXISTS `{empty_conn.address.database}_bench`")


def test_nothing_is_lost_or_doubled_while_workers_are_killed_and_stopped(
    database: dict[str, str], scratch: Path
) -> None:
    plan = Plan(seed=secrets.randbelow(1_000_000), items=3000, strikes=STRIKES, crew=crew.SMALL)
    report = run.run(database, plan, directory=scratch / "chaos")
    run.tell(report, print)
    assert report.differences == []
    assert report.items >= plan.items
    assert report.strikes.kills + report.strikes.stops == STRIKES
    assert report.strikes.kills > 0 < report.strikes.stops
    assert report.rescued_units > 0


def test_whatever_goes_wrong_is_seen(database: dict[str, str], scratch: Path) -> None:
    plan = Plan(seed=1, items=250, strikes=0, crew=crew.SMALL)
    made = feed.make(seed=plan.seed, items=plan.items)
    expected = model.replay(feed.accepted(made.batches))
    report = run.begun(plan, made, expected)
    with (
        stage.opened(database, plan.rules, directory=scratch / "chaos") as opened,
        connect(opened.settings.database) as conn,
    ):
        pushed = run.perform(opened, conn, made, report)
        assert [*report.differences, *pushed.wrong, *run.compare(conn, made, pushed, expected)] == []
        unseen = []
        for mistake in MISTAKES:
            conn.raw.begin()
            assert conn.execute(mistake) > 0, mistake
            if not run.compare(conn, made, pushed, expected):
                unseen.append(mistake)
            conn.raw.rollback()
        assert unseen == []


# -- what it has found ----------------------------------------------------------------------------------


def test_what_came_back_from_a_crash_and_has_to_wait_is_claimed_with_others_again(test_settings: Settings) -> None:
    now = datetime(2026, 1, 1)
    unit = Unit(1, payloads.CHAPTERS, "a", "r", 1, 0, 0, 1, 10, 0, 1, now, now)  # crashes 1
    waits = TryAgain(Job(1, unit, 0, 10, None), "chapter_conflict", "Its number belongs to another.")
    (part,) = jobs.waiting_parts(verdicts.of([waits], test_settings.worker))
    assert (part.attempts, part.crashes) == (1, 0)


async def test_nobody_waits_for_a_rescuer_that_stands_still(conn: Connection, pool: Pool) -> None:
    worker_id = workers.join(conn, identity.mine(), kind="chapters")
    conn.execute("UPDATE wp_novel_workers SET heartbeat_at = heartbeat_at - INTERVAL 1 HOUR")

    async def rescue(seconds: float) -> rescues.Rescued | None:
        return await pool.transaction(
            lambda taken: rescues.rescue(taken, worker_id, silent_seconds=seconds, max_crashes=5, payload_minutes=60)
        )

    with conn.transaction():
        conn.execute("SELECT id FROM wp_novel_workers WHERE id = %s FOR UPDATE", (worker_id,))
        assert await rescue(1.0) is None
    assert await rescue(1.0) == rescues.Rescued()
