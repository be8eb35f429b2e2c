"""Aliases and genres of stories, each replaced as a set; genres are made when a story first has them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import orjson

from store.connection import Connection

# UNIQUE story_alias.
_ALIASES = """
    SELECT a.story_id, a.alias FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_story_aliases a FORCE INDEX (story_alias) ON a.story_id = w.id ORDER BY a.id
"""
_DELETE_ALIASES = """
    DELETE a FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_story_aliases a FORCE INDEX (story_alias) ON a.story_id = w.id
"""
# The place of each, where of those that are the same under the table's collation only the first is told.
_DISTINCT = """
    SELECT MIN(w.place) FROM JSON_TABLE(%s, '$[*]' COLUMNS (
        place INT PATH '$[0]', story_id BIGINT UNSIGNED PATH '$[1]', alias VARCHAR(255) PATH '$[2]'
    )) w
    GROUP BY w.story_id, w.alias COLLATE utf8mb4_unicode_520_ci
"""
_ADD_ALIAS = "INSERT INTO wp_novel_story_aliases (story_id, alias) VALUES (%s, %s) ON DUPLICATE KEY UPDATE id = id"
# UNIQUE slug.
_GENRES = """
    SELECT g.slug, g.id FROM JSON_TABLE(%s, '$[*]' COLUMNS (slug VARCHAR(120) PATH '$')) w
    STRAIGHT_JOIN wp_novel_genres g FORCE INDEX (slug) ON g.slug = w.slug
"""
# UNIQUE name.
_GENRE_BY_NAME = "SELECT id FROM wp_novel_genres WHERE name = %s"
_ADD_GENRE = "INSERT INTO wp_novel_genres (slug, name, created_at) VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE id = id"
# PRIMARY.
_STORY_GENRES = """
    SELECT g.story_id, g.genre_id FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_story_genres g FORCE INDEX (PRIMARY) ON g.story_id = w.id
"""
_DELETE_STORY_GENRES = """
    DELETE g FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_story_genres g FORCE INDEX (PRIMARY) ON g.story_id = w.id
"""
_ADD_STORY_GENRE = """
    INSERT INTO wp_novel_story_genres (story_id, genre_id) VALUES (%s, %s)
    ON DUPLICATE KEY UPDATE story_id = VALUES(story_id)
"""


async def aliases(conn: Connection, story_ids: Sequence[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for story_id, alias in await conn.fetch_all(_ALIASES, (_json(story_ids),)):
        found[story_id].append(alias)
    return found


async def distinct_aliases(conn: Connection, wanted: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
    """Each alias of a story once, as the table compares them: the first stays."""
    found: dict[int, list[str]] = {story_id: [] for story_id in wanted}
    flat = [(story_id, alias) for story_id, some in wanted.items() for alias in some]
    if flat:
        rows = [(place, story_id, alias) for place, (story_id, alias) in enumerate(flat)]
        for (place,) in sorted(await conn.fetch_all(_DISTINCT, (orjson.dumps(rows).decode(),))):
            story_id, alias = flat[place]
            found[story_id].append(alias)
    return found


async def replace_aliases(conn: Connection, new: Mapping[int, Sequence[str]]) -> None:
    if not new:
        return
    await conn.execute(_DELETE_ALIASES, (_json(list(new)),))
    rows = [(story_id, alias) for story_id in sorted(new) for alias in new[story_id]]
    if rows:
        await conn.execute_many(_ADD_ALIAS, rows)


async def genre_ids(conn: Connection, names: Mapping[str, str], *, at: datetime) -> dict[str, int]:
    """The ids of genres, by their slugs; those that are new are made with the names given for them."""
    slugs = orjson.dumps(sorted(names)).decode()
    found: dict[str, int] = dict(await conn.fetch_all(_GENRES, (slugs,)))
    # In the order of slugs, so that two who make the same genres meet in the same order.
    missing = [(slug, names[slug], at.replace(microsecond=0)) for slug in sorted(names) if slug not in found]
    if missing:
        await conn.execute_many(_ADD_GENRE, missing)
        found |= dict(await conn.fetch_all(_GENRES, (slugs,)))
    for slug, name, _ in missing:
        if slug not in found and (row := await conn.fetch_one(_GENRE_BY_NAME, (name,))):
            found[slug] = row[0]  # its name is taken by a genre with another slug: that is the one
    return found


async def genres(conn: Connection, story_ids: Sequence[int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for story_id, genre_id in await conn.fetch_all(_STORY_GENRES, (_json(story_ids),)):
        found[story_id].add(genre_id)
    return found


async def replace_genres(conn: Connection, new: Mapping[int, set[int]]) -> None:
    if not new:
        return
    await conn.execute(_DELETE_STORY_GENRES, (_json(list(new)),))
    rows = [(story_id, genre_id) for story_id in sorted(new) for genre_id in sorted(new[story_id])]
    if rows:
        await conn.execute_many(_ADD_STORY_GENRE, rows)


def _json(story_ids: Sequence[int]) -> str:
    return orjson.dumps(sorted(set(story_ids))).decode()
