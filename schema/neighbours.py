"""Other WordPress sites in the same database whose table prefix begins like our tables do.

Under `wp_`, a site with the prefix `wp_novel_` has `wp_novel_comments`, as we have; one with `wp_novel_x_` has tables
that only look like ours. A site is known by its options table, which we never make under such a name.
"""

from runtime.problems import Problem
from schema import live
from schema.connection import Connection

_OPTIONS = "options"
_OURS = "novel_"


def prefixes(conn: Connection) -> list[str]:
    """Prefixes of other sites that begin with `<our prefix>novel_`."""
    return [name.removesuffix(_OPTIONS) for name in live.names(conn) if name.endswith(f"_{_OPTIONS}")]


def require_none(conn: Connection) -> None:
    """Refuse to make or drop tables whose names another WordPress uses, or to become such a neighbour ourselves."""
    host = conn.table_prefix.removesuffix(_OURS)
    if host != conn.table_prefix and live.has_column(conn, f"{host}{_OURS}stories", "source_story_id"):
        raise Problem(
            f"{conn.address.place} holds an installation of ours with the table prefix {host!r}, whose tables would mix"
            f" with those of {conn.table_prefix!r}. Choose another NOVEL_TABLE_PREFIX, or another database."
        )
    if conn.table("wp_novel_") in prefixes(conn):
        raise Problem(
            f"{conn.address.place} holds a WordPress with the table prefix {conn.table('wp_novel_')!r}, whose tables"
            " would mix with ours. Choose another NOVEL_TABLE_PREFIX, or another database."
        )
