"""Which schema version a database is at, and the guard that keeps programs off an older one."""

from pymysql.err import ProgrammingError

from runtime.problems import Problem
from schema import migrations
from schema.connection import Connection

OPTION = "novel_db_version"
NO_SUCH_TABLE = 1146

# Reads UNIQUE option_name.
SELECT_VERSION = "SELECT option_value FROM wp_options WHERE option_name = 'novel_db_version'"
_RECORD = """
    INSERT INTO wp_options (option_name, option_value, autoload) VALUES (%s, %s, 'no')
    ON DUPLICATE KEY UPDATE option_value = VALUES(option_value)
"""
_FORGET = "DELETE FROM wp_options WHERE option_name = %s"


class SchemaOutdated(Problem):
    """The database is at an older schema version than this program needs."""


class SchemaNewer(Problem):
    """The database is at a newer schema version than this program knows."""


def current(conn: Connection) -> int:
    """The version the database is at; 0 where we never were."""
    try:
        row = conn.fetch_one(SELECT_VERSION)
    except ProgrammingError as error:
        if error.args[0] != NO_SUCH_TABLE:
            raise
        row = None
    return parse(row[0] if row else None)


def parse(option_value: str | None) -> int:
    return int(option_value) if option_value and option_value.isdecimal() else 0


def record(conn: Connection, version: int) -> None:
    conn.execute(_RECORD, (OPTION, str(version)))


def forget(conn: Connection) -> None:
    conn.execute(_FORGET, (OPTION,))


def require(there: int, *, place: str) -> None:
    """Refuse an older schema. A newer one is fine: during a rolling upgrade the old program goes on for a while."""
    needed = migrations.latest()
    if there < needed:
        was = f"at schema version {there}" if there else "without our tables"
        raise SchemaOutdated(f"the database {place} is {was}; this program needs version {needed}. Run: novel migrate")


def require_known(there: int, *, place: str) -> None:
    """Refuse a newer schema: for migrating and checking, which need to know what the newest is."""
    newest = migrations.latest()
    if there > newest:
        raise SchemaNewer(
            f"the database {place} is at schema version {there}, made by a newer program;"
            f" this program knows versions up to {newest}. Update it, then try again."
        )
