"""`wp_novel_story_recount_queue`: stories whose counts are to be computed again, each at most once."""

from collections.abc import Collection

from store.connection import Connection

# PRIMARY. Sorted by story, so that two writers meet in the same order.
_MARK = """
    INSERT INTO wp_novel_story_recount_queue
        (story_id, dirty_since, next_run_at, priority, touch_count, updated_at)
    VALUES (%s, UTC_TIMESTAMP(), UTC_TIMESTAMP(), %s, 1, UTC_TIMESTAMP())
    ON DUPLICATE KEY UPDATE next_run_at = LEAST(next_run_at, VALUES(next_run_at)),
        priority = GREATEST(priority, VALUES(priority)), touch_count = touch_count + 1, updated_at = VALUES(updated_at)
"""

# Somebody asked for it: before what the workers touch.
ASKED_FOR = 10


async def ask(conn: Connection, story_ids: Collection[int]) -> None:
    """Have these stories recounted as soon as possible."""
    await conn.execute_many(_MARK, [(story_id, ASKED_FOR) for story_id in sorted(set(story_ids))])
