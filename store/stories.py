"""`wp_novel_stories`."""

from collections.abc import Sequence

import orjson

from store.connection import Connection

# PRIMARY, a point for each id.
_SOURCES = """
    SELECT s.id, s.source
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) wanted
    STRAIGHT_JOIN wp_novel_stories s FORCE INDEX (PRIMARY) ON s.id = wanted.id
"""


async def sources(conn: Connection, story_ids: Sequence[int]) -> dict[int, str]:
    """The source of each of these stories that exists."""
    return dict(await conn.fetch_all(_SOURCES, (orjson.dumps(story_ids).decode(),)))
