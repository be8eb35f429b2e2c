"""Bodies of chapters (`wp_novel_chapter_content`), and what they were before (`wp_novel_chapter_versions`)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from store.connection import Connection

# KEY by_hash, read from the index alone.
_KNOWN = """
    SELECT DISTINCT LOWER(w.sha256) FROM JSON_TABLE(%s, '$[*]' COLUMNS (sha256 CHAR(64) PATH '$')) w
    STRAIGHT_JOIN wp_novel_chapter_content t FORCE INDEX (by_hash) ON t.content_hash = UNHEX(w.sha256)
"""
_WRITE = """
    INSERT INTO wp_novel_chapter_content
        (chapter_id, content_raw, content_html, content_hash, content_size, content_encoding, created_at, updated_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
    ON DUPLICATE KEY UPDATE content_raw = VALUES(content_raw), content_html = VALUES(content_html),
        content_hash = VALUES(content_hash), content_size = VALUES(content_size),
        content_encoding = VALUES(content_encoding), updated_at = VALUES(updated_at)
"""
# PRIMARY, the last entry of each chapter.
_LAST_VERSIONS = """
    SELECT v.chapter_id, MAX(v.version) FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) w
    STRAIGHT_JOIN wp_novel_chapter_versions v FORCE INDEX (PRIMARY) ON v.chapter_id = w.id GROUP BY v.chapter_id
"""
# PRIMARY.
_KEEP = """
    INSERT INTO wp_novel_chapter_versions
        (chapter_id, version, content_raw, content_hash, content_size, content_encoding, created_at, replaced_at)
    SELECT t.chapter_id, w.version, t.content_raw, t.content_hash, t.content_size, t.content_encoding, t.updated_at, %s
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', version INT UNSIGNED PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_chapter_content t FORCE INDEX (PRIMARY) ON t.chapter_id = w.id
"""
# PRIMARY, a range for each chapter.
_FORGET = """
    DELETE v FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', version INT UNSIGNED PATH '$[1]')) w
    STRAIGHT_JOIN wp_novel_chapter_versions v FORCE INDEX (PRIMARY) ON v.chapter_id = w.id AND v.version <= w.version
"""


@dataclass(frozen=True, slots=True)
class Body:
    """A body as it is stored; hash and size are of the text before compression."""

    chapter_id: int
    raw: bytes
    html: bytes
    sha256: bytes
    size: int
    encoding: str


async def known(conn: Connection, hashes: Collection[bytes]) -> set[bytes]:
    """Which of these texts some chapter has."""
    values = orjson.dumps([sha256.hex() for sha256 in hashes]).decode()
    return {bytes.fromhex(row[0]) for row in await conn.fetch_all(_KNOWN, (values,))}


async def write(conn: Connection, bodies: Sequence[Body], *, at: datetime) -> None:
    whole = at.replace(microsecond=0)
    await conn.execute_many(
        _WRITE,
        [
            (body.chapter_id, body.raw, body.html, body.sha256, body.size, body.encoding, whole, whole)
            for body in bodies
        ],
    )


async def keep(conn: Connection, chapter_ids: Sequence[int], *, at: datetime, most: int) -> None:
    """Keep the present bodies of chapters as versions, at most so many of each chapter: the oldest go."""
    if not chapter_ids:
        return
    ids = orjson.dumps(sorted(chapter_ids)).decode()
    last = {chapter_id: int(version) for chapter_id, version in await conn.fetch_all(_LAST_VERSIONS, (ids,))}
    new = [(chapter_id, last.get(chapter_id, 0) + 1) for chapter_id in sorted(chapter_ids)]
    if most:
        await conn.execute(_KEEP, (at.replace(microsecond=0), orjson.dumps(new).decode()))
    old = [(chapter_id, version - most) for chapter_id, version in new if version > most]
    if old:
        await conn.execute(_FORGET, (orjson.dumps(old).decode(),))
