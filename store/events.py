"""`wp_novel_events`: one row for every change that readers can see, in the order of the commits.

An auto-increment id is given out before the COMMIT, so without more, a reader with a cursor could see event 8, go on
from there, and miss event 7 that is committed a moment later. Therefore everyone who appends locks the one row of
`wp_novel_event_gate` first and keeps it until the COMMIT: ids are given out and become visible in the same order.
`append` is the last thing a transaction does, so that the gate is held for a moment only, and nobody waits for another
lock with the gate in hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from store.connection import Connection

STORY_CREATED, STORY_UPDATED, STORY_DELETED = "story.created", "story.updated", "story.deleted"
CHAPTER_CREATED, CHAPTER_UPDATED, CHAPTER_DELETED = "chapter.created", "chapter.updated", "chapter.deleted"

_ENTER_GATE = """
    INSERT INTO wp_novel_event_gate (id, passed) VALUES (1, 1) ON DUPLICATE KEY UPDATE passed = passed + 1
"""
_APPEND = """
    INSERT INTO wp_novel_events (event_type, story_id, chapter_id, created_at) VALUES (%s, %s, %s, UTC_TIMESTAMP(6))
"""
# PRIMARY.
_AFTER = """
    SELECT id, event_type, story_id, chapter_id, created_at FROM wp_novel_events WHERE id > %s ORDER BY id LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class New:
    event_type: str
    story_id: int
    chapter_id: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    event_type: str
    story_id: int
    chapter_id: int | None
    created_at: datetime


async def append(conn: Connection, new: Sequence[New]) -> None:
    """Append events. Nothing but the COMMIT may come after it."""
    if new:
        await conn.execute(_ENTER_GATE)
        await conn.execute_many(_APPEND, [(event.event_type, event.story_id, event.chapter_id) for event in new])


async def after(conn: Connection, cursor: int, *, limit: int) -> list[Event]:
    """The next events after a cursor, which is the id of the last one read, or 0."""
    return [Event(*row) for row in await conn.fetch_all(_AFTER, (cursor, limit))]


def of_story(*, was_visible: bool, is_visible: bool) -> str | None:
    """What readers would call a change that was written; None if they cannot see it."""
    return _KINDS.get((was_visible, is_visible), (None, None))[0]


def of_chapter(*, was_visible: bool, is_visible: bool) -> str | None:
    return _KINDS.get((was_visible, is_visible), (None, None))[1]


_KINDS = {
    (False, True): (STORY_CREATED, CHAPTER_CREATED),
    (True, True): (STORY_UPDATED, CHAPTER_UPDATED),
    (True, False): (STORY_DELETED, CHAPTER_DELETED),
}
