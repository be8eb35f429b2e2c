"""How every connection is set, by whichever driver: READ COMMITTED, UTC, strict, one collation, bounded waits."""

from dataclasses import dataclass
from typing import Any

from schema.dialect import TEXT_COLLATION, Dialect

# Zero dates stay allowed: WordPress's own tables have them as defaults.
SQL_MODE = "STRICT_ALL_TABLES,ONLY_FULL_GROUP_BY,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
_NAMES = f"SET NAMES utf8mb4 COLLATE {TEXT_COLLATION}"
_MARIADB = """
    SET SESSION sql_mode = %s, time_zone = '+00:00', autocommit = 1,
        innodb_lock_wait_timeout = %s, lock_wait_timeout = %s, max_statement_time = %s, idle_transaction_timeout = %s
"""
_MYSQL = """
    SET SESSION sql_mode = %s, time_zone = '+00:00', autocommit = 1,
        innodb_lock_wait_timeout = %s, lock_wait_timeout = %s, max_execution_time = %s
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the server lets this connection work and wait. A statement limit of 0 is none."""

    statement_seconds: float
    row_lock_seconds: int
    table_lock_seconds: int
    idle_transaction_seconds: int = 0
    """How long a transaction may stand still before the server ends it, and frees what it has locked: its owner may be
    stopped, or lost. 0 is for ever; MySQL has no such limit."""


def statements(dialect: Dialect, limits: Limits) -> list[tuple[str, tuple[Any, ...]]]:
    waits = (SQL_MODE, limits.row_lock_seconds, limits.table_lock_seconds)
    settings = (
        (_MARIADB, (*waits, limits.statement_seconds, limits.idle_transaction_seconds))
        if dialect.is_mariadb
        else (_MYSQL, (*waits, round(limits.statement_seconds * 1000)))
    )
    return [(_NAMES, ()), (_ISOLATION, ()), settings]
