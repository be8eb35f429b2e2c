"""Drops the tables that the migrations made, and the recorded version: nothing else."""

from schema import declared, live, neighbours, turn, version
from schema.connection import Connection

_DROP = "DROP TABLE IF EXISTS {table}"


def tables(conn: Connection) -> list[str]:
    """What a drop would delete: what the migrations made. Other `<prefix>novel_*` tables are somebody else's."""
    ours = declared.tables(conn.dialect, prefix=conn.table_prefix)
    return sorted(ours.keys() & live.tables(conn).keys())


def drop(conn: Connection, *, lock_seconds: int) -> list[str]:
    """Drop them all; returns their names."""
    with turn.taken(conn, lock_seconds=lock_seconds):
        neighbours.require_none(conn)
        version.require_known(version.current(conn), place=conn.address.place)
        dropped = tables(conn)
        for table in dropped:
            # A table's name cannot be a parameter; it comes from the server's own list and is quoted.
            conn.execute_as_is(_DROP.format(table="`" + table.replace("`", "``") + "`"))
        if live.column_names(conn, conn.table("wp_options")):
            version.forget(conn)
    return dropped
