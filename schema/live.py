"""The schema that the database really has, read from information_schema."""

import re
from collections import defaultdict

from schema.connection import Connection
from schema.model import Column, Index, Table, plain_default

# Compared byte by byte: `blog_` and `BLOG_` are two prefixes, though information_schema would find both by either.
_TABLES = """
    SELECT TABLE_NAME, ENGINE, TABLE_COLLATION
    FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE %s COLLATE utf8mb4_bin AND TABLE_TYPE = 'BASE TABLE'
"""
_COLUMNS = """
    SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, COLLATION_NAME, EXTRA
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE %s COLLATE utf8mb4_bin
    ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
_INDEXES = """
    SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, INDEX_TYPE, COLUMN_NAME, COLLATION, SUB_PART
    FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE %s COLLATE utf8mb4_bin
    ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
"""
_COLUMN_EXISTS = """
    SELECT 1 FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND COLUMN_NAME = %s
"""
_INDEX_EXISTS = """
    SELECT 1 FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND INDEX_NAME = %s LIMIT 1
"""
# What nobody asked the migrations for, but someone may have added.
_ADDITIONS = """
    SELECT TABLE_NAME, CONSTRAINT_TYPE, CONSTRAINT_NAME
    FROM information_schema.TABLE_CONSTRAINTS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE %s COLLATE utf8mb4_bin
        AND CONSTRAINT_TYPE IN ('FOREIGN KEY', 'CHECK')
    UNION ALL
    SELECT EVENT_OBJECT_TABLE, 'TRIGGER', TRIGGER_NAME
    FROM information_schema.TRIGGERS
    WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE LIKE %s COLLATE utf8mb4_bin
    ORDER BY 1, 2, 3
"""
_NO_EXTRA = re.compile("auto_increment|default_generated")
_INTEGER_WIDTH = re.compile(r"^((?:tiny|small|medium|big)?int)\(\d+\)")


def tables(conn: Connection) -> dict[str, Table]:
    """Every table of ours that is there."""
    pattern = _like(conn.table("wp_novel_")) + "%"
    columns: dict[str, dict[str, Column]] = defaultdict(dict)
    for table, name, type_, nullable, default, collation, extra in conn.fetch_all(_COLUMNS, (pattern,)):
        columns[table][name] = Column(
            type=_INTEGER_WIDTH.sub(r"\1", type_.lower()),
            nullable=nullable == "YES",
            default=_default(default, conn.dialect.is_mariadb),
            collation=collation,
            auto_increment="auto_increment" in extra.lower(),
            extra=_NO_EXTRA.sub("", extra.lower().replace("()", "")).strip() or None,
        )
    parts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    kinds: dict[tuple[str, str], str] = {}
    for table, name, non_unique, kind, column, order, length in conn.fetch_all(_INDEXES, (pattern,)):
        # A FULLTEXT index has no order and reports no prefix of its own.
        suffix = "" if kind == "FULLTEXT" else (f"({length})" if length else "") + (" DESC" if order == "D" else "")
        parts[table][name].append(column + suffix)
        kinds[table, name] = _kind(name, non_unique, kind)
    return {
        table: Table(
            columns[table],
            {name: Index(kinds[table, name], tuple(names)) for name, names in parts[table].items()},
            engine,
            collation,
        )
        for table, engine, collation in conn.fetch_all(_TABLES, (pattern,))
    }


def names(conn: Connection) -> list[str]:
    """Names of all tables that begin as ours do."""
    return [name for name, _, _ in conn.fetch_all(_TABLES, (_like(conn.table("wp_novel_")) + "%",))]


def additions(conn: Connection) -> list[tuple[str, str, str]]:
    """Foreign keys, checks and triggers of our tables: table, kind and name."""
    pattern = _like(conn.table("wp_novel_")) + "%"
    return [(table, kind.lower(), name) for table, kind, name in conn.fetch_all(_ADDITIONS, (pattern, pattern))]


def column_names(conn: Connection, table: str) -> set[str]:
    return {row[1] for row in conn.fetch_all(_COLUMNS, (_like(table),))}


def has_column(conn: Connection, table: str, column: str) -> bool:
    return conn.fetch_one(_COLUMN_EXISTS, (table, column)) is not None


def has_index(conn: Connection, table: str, index: str) -> bool:
    return conn.fetch_one(_INDEX_EXISTS, (table, index)) is not None


def _like(text: str) -> str:
    return text.replace("_", r"\_")


def _default(value: str | None, is_mariadb: bool) -> str | None:
    """MariaDB gives a default as SQL text ('vi', NULL), MySQL gives the bare value."""
    if value is None or (is_mariadb and value.upper() == "NULL"):
        return None
    return plain_default(value[1:-1] if is_mariadb and value.startswith("'") else value)


def _kind(name: str, non_unique: int, index_type: str) -> str:
    if name == "PRIMARY":
        return "PRIMARY"
    if index_type == "FULLTEXT":
        return "FULLTEXT"
    return "KEY" if non_unique else "UNIQUE"
