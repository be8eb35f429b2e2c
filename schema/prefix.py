"""The table prefix. SQL is written with WordPress's default `wp_`; this is the one place that rewrites it."""

import functools
import re

WRITTEN = "wp_"
# WordPress's own tables that we use. Every table of ours is `<prefix>novel_...`.
CORE_TABLES = ("users", "usermeta", "options")

# Strings are matched first and kept: a meta key such as 'wp_users' is data, not a table. So are comments, whose
# apostrophes are no strings.
_KEPT_OR_TABLE = re.compile(
    rf"""
        '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | --[ ][^\n]* | /\*[^!+].*?\*/
      | \b{WRITTEN}(?=novel_|(?:{"|".join(CORE_TABLES)})\b)
    """,
    re.VERBOSE | re.DOTALL,
)


@functools.lru_cache(maxsize=2048)
def rewrite(sql: str, prefix: str) -> str:
    """The same statement for another prefix. Strings in it, and values bound later, are never touched."""
    if prefix == WRITTEN:
        return sql
    return _KEPT_OR_TABLE.sub(lambda match: prefix if match[0] == WRITTEN else match[0], sql)
