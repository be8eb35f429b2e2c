"""The table prefix. SQL is written with WordPress's default `wp_`; this is the one place that rewrites it."""

import functools
import re

WRITTEN = "wp_"
# WordPress's own tables that we use. Every table of ours is `<prefix>novel_...`.
CORE_TABLES = ("users", "usermeta", "options")

_TABLE = re.compile(rf"\b{WRITTEN}(?=novel_|(?:{'|'.join(CORE_TABLES)})\b)")


@functools.lru_cache(maxsize=2048)
def rewrite(sql: str, prefix: str) -> str:
    """The same statement for another prefix. Values are bound later, so they are never touched."""
    return sql if prefix == WRITTEN else _TABLE.sub(prefix, sql)
