"""Which chapters of a batch are stored already just as they were pushed, their updated_at_source included.

Of such an item nothing is left to do, now or later: whatever is applied before a worker would come to it is newer, and
then it would be stale. So its job is written as completed, and neither its text nor a worker is troubled. A crawler
that pushes its whole catalogue again, most of which has not changed, costs a fraction of the first time.

Most batches are new. Therefore a few items are looked up first, and the others only if one of these was there.
"""

from collections.abc import Sequence
from datetime import UTC

from ingest.batch import Candidate
from store import standing_chapters
from store.connection import Connection
from store.payloads import ChapterFrame
from store.standing_chapters import Standing

SAMPLE = 4


async def find(conn: Connection, source: str, candidates: Sequence[Candidate]) -> set[int]:
    """The indexes of those that are stored as they are."""
    sample = candidates[:: max(1, len(candidates) // SAMPLE)]
    found = await _find(conn, source, sample)
    if found and len(sample) < len(candidates):
        found |= await _find(conn, source, candidates)
    return found


async def _find(conn: Connection, source: str, candidates: Sequence[Candidate]) -> set[int]:
    chapters = [
        (candidate.index, candidate.frame)
        for candidate in candidates
        if isinstance(candidate.frame, ChapterFrame) and candidate.frame.content is not None
    ]
    stored = await standing_chapters.find(
        conn,
        source,
        [(index, frame.source_story_id, frame.source_chapter_id, frame.chapter_no) for index, frame in chapters],
    )
    return {index for index, frame in chapters if index in stored and is_same(frame, stored[index])}


def is_same(frame: ChapterFrame, row: Standing) -> bool:
    """Whether an item says nothing but what is stored."""
    published_at = frame.published_at and frame.published_at.astimezone(UTC).replace(tzinfo=None, microsecond=0)
    return (
        frame.content is not None
        and frame.content.sha256 == row.sha256
        and frame.updated_at_source.astimezone(UTC).replace(tzinfo=None) == row.at
        and frame.chapter_no == row.number
        and frame.slug == row.slug
        and frame.title == row.title
        and (frame.is_published is None or frame.is_published == row.is_published)
        and (published_at is None or published_at == row.published_at)
    )
