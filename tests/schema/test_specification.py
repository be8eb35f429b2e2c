"""Every table, column and index of the specification's §6, against what a migrated database really has.

`specification.txt` is written from the specification. Nothing here uses the code that compares schemas.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pymysql
import pytest

from schema.connection import Connection

Columns = dict[str, tuple[str, bool, str | None, bool]]
"""Type, whether it may be NULL, default, auto increment."""

# What the design lets differ, each with its reason.
LONGBLOB_INSTEAD_OF_LONGTEXT = {
    ("wp_novel_chapter_content", "content_raw"): "compressed bytes are no text",
    ("wp_novel_chapter_content", "content_html"): "compressed bytes are no text",
}
MORE_COLUMNS = {
    ("wp_novel_ingest_requests", "payload_hash"): "tells a retry from another payload under the same key",
    ("wp_novel_ingest_requests", "response_json"): "a retry gets the answer of the first request",
    ("wp_novel_stories", "search_text"): "folded and padded names, for search",
    ("wp_novel_ingest_jobs", "item_index"): "a job's place in its request",
    ("wp_novel_ingest_jobs", "crashes"): "crashes and retries count separately",
    ("wp_novel_ingest_jobs", "is_stale"): "stale items are reported as such",
    ("wp_novel_ingest_jobs", "error_code"): "dead letters are replayed by error code",
    ("wp_novel_ingest_jobs", "payload_offset"): "where a job's payload begins in the blob it shares with others",
    ("wp_novel_ingest_requests", "key_id"): "which key made the request",
    ("wp_novel_stories", "source_microsecond"): "of two updates within a second the newer stands",
    ("wp_novel_chapters", "source_microsecond"): "of two updates within a second the newer stands",
    ("wp_novel_story_recount_queue", "attempts"): "recounts have retries of their own",
}
MORE_INDEXES = {
    ("wp_novel_stories", "FULLTEXT", ("search_text",)): "search",
    ("wp_novel_ingest_jobs", "KEY", ("payload_blob_id", "item_index")): "from a blob to one of its items",
}
MORE_TABLES = {
    "wp_novel_reports": "§7.6 has the route, §6 forgot the table",
    "wp_novel_comment_likes": "§7.6 has the route, §6 forgot the table",
    "wp_novel_events": "every visible change, for caches and feeds",
    "wp_novel_ingest_ready": "what waits in the queue, in a narrow table",
    "wp_novel_ingest_leases": "what a worker holds",
    "wp_novel_workers": "one heartbeat row per worker process",
    "wp_novel_api_key_terms": "the sources, the end and the locks of a key, whose own table stays as specified",
    "wp_novel_rate_windows": "quotas while Redis is away",
    "wp_novel_chapter_versions": "what a chapter's body was before",
    "wp_novel_event_gate": "events get their ids in the order of their commits",
    "wp_novel_upkeep": "whose turn a task of maintenance is",
    "wp_novel_ingest_minutes": "what the queue did in each minute",
}
# Identifiers, and words of the program, compare byte by byte; all other text folds (đ = d).
BYTEWISE = {
    *("source", "source_story_id", "source_chapter_id", "slug", "key_id", "request_id", "idempotency_key"),
    *("external_ref", "reference_id", "device_id", "locked_by"),
    *("job_type", "event_type", "level", "error_code", "search_text"),
}
TEXT_TYPES = ("char", "varchar", "text", "mediumtext", "longtext")


@dataclass
class Specified:
    columns: Columns = field(default_factory=dict)
    indexes: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


def read_specification() -> dict[str, Specified]:
    tables: dict[str, Specified] = {}
    table = Specified()
    for line in Path(__file__).with_name("specification.txt").read_text().splitlines():
        if line.startswith("§"):
            table = tables.setdefault(line.split()[1], Specified())
        elif index := re.fullmatch(
            r"  (?:optional )?(PRIMARY KEY|UNIQUE|KEY|FULLTEXT)\((.+)\)(?: on MySQL 8\+| if source id is provided)?",
            line,
        ):
            one = (index[1].removesuffix(" KEY"), tuple(index[2].split(", ")))
            if one not in table.indexes:  # a primary key may be said twice: with its column, and below
                table.indexes.append(one)
        elif column := re.fullmatch(
            r"  (\w+) ([A-Z]+(?:\([\d,]+\))?(?: UNSIGNED)?)"
            r"(?: (PK)( AUTO_INCREMENT)?| (NULL)| (NOT NULL)(?: DEFAULT (?:'(\w+)'|(\d+)))?)",
            line,
        ):
            name, type_, is_key, counts, nullable, _, text, number = column.groups()
            table.columns[name] = (type_.lower(), bool(nullable), text or number, bool(counts))
            if is_key:
                table.indexes.append(("PRIMARY", (name,)))
        else:
            assert not line or line.startswith("#"), f"not understood: {line}"
    return tables


SPECIFICATION = read_specification()


def live_columns(conn: Connection, table: str) -> Columns:
    rows = conn.fetch_all(
        "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (table,),
    )
    return {
        name: (
            re.sub(r"int\(\d+\)", "int", type_),
            nullable == "YES",
            None if default in (None, "NULL") else default.strip("'"),
            extra == "auto_increment",
        )
        for name, type_, nullable, default, extra in rows
    }


def live_indexes(conn: Connection, table: str) -> list[tuple[str, tuple[str, ...]]]:
    rows = conn.fetch_all(
        "SELECT INDEX_NAME, NON_UNIQUE, INDEX_TYPE, COLUMN_NAME, COLLATION, SUB_PART FROM information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        (table,),
    )
    kinds: dict[str, str] = {}
    columns: dict[str, list[str]] = {}
    for name, non_unique, type_, column, order, length in rows:
        kinds[name] = name if name == "PRIMARY" else type_ if type_ == "FULLTEXT" else "KEY" if non_unique else "UNIQUE"
        assert length is None, f"{table}.{name} covers only the beginning of {column}"
        columns.setdefault(name, []).append(column + (" DESC" if order == "D" else ""))
    return [(kinds[name], tuple(parts)) for name, parts in columns.items()]


def test_the_specification_has_nineteen_tables_and_is_read_whole() -> None:
    assert len(SPECIFICATION) == 19
    assert sum(len(table.columns) for table in SPECIFICATION.values()) == 172
    assert sum(len(table.indexes) for table in SPECIFICATION.values()) == 90
    assert SPECIFICATION["wp_novel_stories"].columns["language"] == ("varchar(10)", False, "vi", False)
    assert ("KEY", ("priority DESC", "next_run_at", "story_id")) in SPECIFICATION[
        "wp_novel_story_recount_queue"
    ].indexes


def test_there_are_the_specified_tables_and_those_the_design_adds(conn: Connection) -> None:
    rows = conn.fetch_all("SHOW TABLES LIKE 'wp\\_novel\\_%'")
    assert {row[0] for row in rows} == {*SPECIFICATION, *MORE_TABLES}


@pytest.mark.parametrize("table", SPECIFICATION)
def test_every_column_is_as_specified(conn: Connection, table: str) -> None:
    there = live_columns(conn, table)
    more = [name for owner, name in MORE_COLUMNS if owner == table]
    assert [name for name in there if name not in more] == list(SPECIFICATION[table].columns), "names, in order"
    assert set(more) <= set(there)
    for name, (type_, nullable, default, counts) in SPECIFICATION[table].columns.items():
        type_there, nullable_there, default_there, counts_there = there[name]
        assert type_there == ("longblob" if (table, name) in LONGBLOB_INSTEAD_OF_LONGTEXT else type_), name
        assert (nullable_there, counts_there) == (nullable, counts), name
        if default is not None and default_there is not None and default.isdigit():
            assert Decimal(default_there) == Decimal(default), name  # a DECIMAL(14,4) says 0.0000
        else:
            assert default_there == default, name


@pytest.mark.parametrize("table", SPECIFICATION)
def test_every_index_is_as_specified(conn: Connection, table: str) -> None:
    more = [(kind, columns) for owner, kind, columns in MORE_INDEXES if owner == table]
    assert sorted(live_indexes(conn, table)) == sorted([*SPECIFICATION[table].indexes, *more])


@pytest.mark.parametrize("table", SPECIFICATION)
def test_every_table_is_innodb_and_every_text_is_utf8mb4_in_the_right_collation(conn: Connection, table: str) -> None:
    assert conn.fetch_one(
        "SELECT ENGINE, TABLE_COLLATION FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s",
        (table,),
    ) == ("InnoDB", "utf8mb4_unicode_520_ci")
    rows = conn.fetch_all(
        "SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s",
        (table,),
    )
    assert rows
    for name, type_, charset, collation in rows:
        if type_ not in TEXT_TYPES:
            assert (charset, collation) == (None, None), name
            continue
        assert charset == "utf8mb4", name
        assert collation == (conn.dialect.identifier_collation if name in BYTEWISE else "utf8mb4_unicode_520_ci"), name


@pytest.mark.parametrize("table", MORE_TABLES)
def test_added_tables_have_a_primary_key_and_are_innodb(conn: Connection, table: str) -> None:
    assert "PRIMARY" in {kind for kind, _ in live_indexes(conn, table)}
    assert conn.fetch_one(
        "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s", (table,)
    ) == ("InnoDB",)


# -- what the exceptions are for ---------------------------------------------------------------------------------------


def insert_story(conn: Connection, source: str, source_story_id: str, slug: str) -> None:
    conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)"
        " VALUES (%s, %s, %s, 't', UTC_TIMESTAMP(), UTC_TIMESTAMP())",
        (source, source_story_id, slug),
    )


@pytest.mark.parametrize("other", [("a", "ABC", "x"), ("a", "abc ", "x"), ("A", "abc", "slug"), ("a", "äbc", "Slug")])
def test_stories_whose_identifiers_differ_in_one_byte_are_two(conn: Connection, other: tuple[str, str, str]) -> None:
    insert_story(conn, "a", "abc", "slug")
    insert_story(conn, *other)
    assert conn.fetch_one("SELECT COUNT(*) FROM wp_novel_stories") == (2,)


@pytest.mark.parametrize("other", [("a", "abc", "x"), ("a", "x", "slug")])
def test_the_same_story_or_slug_of_a_source_is_refused(conn: Connection, other: tuple[str, str, str]) -> None:
    insert_story(conn, "a", "abc", "slug")
    with pytest.raises(pymysql.err.IntegrityError, match="Duplicate entry"):
        insert_story(conn, *other)


@pytest.mark.parametrize("alias", ["đấu phá", "ĐẤU PHÁ", "Dau Pha"])
def test_aliases_are_one_whatever_their_case_and_accents(conn: Connection, alias: str) -> None:
    insert = "INSERT INTO wp_novel_story_aliases (story_id, alias) VALUES (1, %s)"
    conn.execute(insert, ("Đấu Phá",))
    with pytest.raises(pymysql.err.IntegrityError, match="Duplicate entry"):
        conn.execute(insert, (alias,))


def test_chapters_without_a_source_id_do_not_collide(conn: Connection) -> None:
    for number in (1, 2):
        conn.execute(
            "INSERT INTO wp_novel_chapters (story_id, chapter_no, slug, title, created_at, updated_at)"
            " VALUES (1, %s, %s, 't', UTC_TIMESTAMP(), UTC_TIMESTAMP())",
            (number, f"c{number}"),
        )
    assert conn.fetch_one("SELECT COUNT(*) FROM wp_novel_chapters WHERE source_chapter_id IS NULL") == (2,)


def test_a_body_may_be_any_bytes(conn: Connection) -> None:
    body = bytes(range(256)) * 300  # longer than a BLOB
    conn.execute(
        "INSERT INTO wp_novel_chapter_content (chapter_id, content_raw, content_html, created_at, updated_at)"
        " VALUES (1, %s, %s, UTC_TIMESTAMP(), UTC_TIMESTAMP())",
        (body, body),
    )
    assert conn.fetch_one("SELECT content_raw, content_html FROM wp_novel_chapter_content") == (body, body)


# -- WordPress's own tables --------------------------------------------------------------------------------------------

WORDPRESS = Path(__file__).with_name("wordpress_core.sql").read_text()
CORE = ("wp_users", "wp_usermeta", "wp_options")


@pytest.fixture
def wordpress(empty_conn: Connection) -> Callable[[str], str]:
    """How a table is when WordPress itself made it."""
    for statement in WORDPRESS.partition("\n\n")[2].split(";"):
        if statement.strip():
            empty_conn.execute(statement)
    return lambda table: show_create(empty_conn, table)


def show_create(conn: Connection, table: str) -> str:
    row = conn.fetch_one(f"SHOW CREATE TABLE {table}")
    assert row is not None
    return re.sub(r" AUTO_INCREMENT=\d+", "", row[1])


@pytest.mark.parametrize("table", CORE)
def test_core_tables_are_made_exactly_as_wordpress_makes_them(
    conn: Connection, wordpress: Callable[[str], str], table: str
) -> None:
    assert show_create(conn, table) == wordpress(table)
