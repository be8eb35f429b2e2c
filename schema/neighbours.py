"""A WordPress whose table prefix is `wp_novel_` would have `wp_novel_comments` and more, as we have under `wp_`."""

from runtime.problems import Problem
from schema import live
from schema.connection import Connection

# Every WordPress has it, and we never will: our options live in WordPress's own table.
_ITS_OPTIONS = "wp_novel_options"


def require_none(conn: Connection) -> None:
    """Refuse to make or drop tables whose names another WordPress uses."""
    if live.column_names(conn, conn.table(_ITS_OPTIONS)):
        raise Problem(
            f"{conn.address.place} holds a WordPress with the table prefix {conn.table('wp_novel_')!r}, whose tables"
            " would mix with ours. Choose another NOVEL_TABLE_PREFIX, or another database."
        )
