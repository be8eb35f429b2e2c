"""Drops our tables, and nothing else: `<prefix>novel_*` and the recorded version."""

from schema import live, neighbours, turn, version
from schema.connection import Connection

_DROP = "DROP TABLE IF EXISTS {table}"


def tables(conn: Connection) -> list[str]:
    """What a drop would delete."""
    return sorted(live.tables(conn))


def drop(conn: Connection, *, lock_seconds: int) -> list[str]:
    """Drop them all; returns their names."""
    with turn.taken(conn, lock_seconds=lock_seconds):
        neighbours.require_none(conn)
        dropped = tables(conn)
        for table in dropped:
            # A table's name cannot be a parameter; it comes from the server's own list and is quoted.
            conn.execute(_DROP.format(table="`" + table.replace("`", "``") + "`"))
        if live.column_names(conn, conn.table("wp_options")):
            version.forget(conn)
    return dropped
