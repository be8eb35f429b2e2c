"""Brings a database to the newest schema, one migrator at a time.

Protocol: take a named lock of the server; for each migration above the recorded version run its statements, leaving out
what is there already; record the version and log the result. DDL commits by itself, so a migration that fails halfway
stays half done, its version unrecorded, and the next run finishes it.
"""

import contextlib
import time
from collections.abc import Callable

import pymysql
from sqlglot import exp

from runtime import logs
from runtime.problems import Problem
from schema import journal, live, migrations, neighbours, turn, version
from schema.connection import Connection, explain
from schema.migrations import Migration

log = logs.get(__name__)

LOCK_WAIT_TIMEOUT = 1205


def pending(conn: Connection, *, to: int | None = None) -> list[Migration]:
    """What a run would apply. Refuses a database that a newer program has migrated."""
    there = version.current(conn)
    version.require_known(there, place=conn.address.place)
    return [m for m in migrations.available() if there < m.number <= (to or migrations.latest())]


def migrate(
    conn: Connection,
    *,
    lock_seconds: int,
    to: int | None = None,
    on_applied: Callable[[Migration, float], None] = lambda migration, seconds: None,
) -> list[Migration]:
    """Apply what is pending, in order; returns what was applied."""
    with turn.taken(conn, lock_seconds=lock_seconds):
        neighbours.require_none(conn)
        todo = pending(conn, to=to)
        for migration in todo:
            started = time.monotonic()
            _apply(conn, migration)
            seconds = time.monotonic() - started
            log.info("schema.migrated", migration=migration.name, seconds=round(seconds, 3))
            on_applied(migration, seconds)
        return todo


def _apply(conn: Connection, migration: Migration) -> None:
    step = ""
    try:
        for step in migration.statements:
            if not _is_done(conn, step):
                conn.execute(step)
        step = "recording its version"
        # Logged first, so that what is recorded is always logged. No transaction: wp_options may be an old MyISAM
        # table, which MySQL with GTIDs refuses to change in one.
        journal.append(conn, "schema.migrated", f"Applied migration {migration.name}.", reference=migration.name)
        version.record(conn, migration.number)
    except pymysql.MySQLError as error:
        _log_failure(conn, migration, error)
        raise _failure(conn, migration, step, error) from error


def _is_done(conn: Connection, statement: str) -> bool:
    """Whether a statement's effect is there already. CREATE TABLE IF NOT EXISTS sees to that itself."""
    tree = migrations.parse(statement)
    if isinstance(tree, exp.Create):
        return False
    table = conn.table(tree.this.name)
    (action,) = tree.args["actions"]
    if isinstance(action, exp.ColumnDef):
        return live.has_column(conn, table, action.name)
    (index,) = action.expressions
    name = index.this.this.name if isinstance(index, exp.UniqueColumnConstraint) else index.this.name
    return live.has_index(conn, table, name)


def _log_failure(conn: Connection, migration: Migration, error: pymysql.MySQLError) -> None:
    message = f"Migration {migration.name} failed: {error}"
    log.error("schema.migration_failed", migration=migration.name, error=str(error))
    with contextlib.suppress(pymysql.MySQLError):  # the log may be what could not be made
        journal.append(conn, "schema.migration_failed", message, level="error", reference=migration.name)


def _failure(conn: Connection, migration: Migration, step: str, error: pymysql.MySQLError) -> Problem:
    if error.args[0] == LOCK_WAIT_TIMEOUT:
        return Problem(
            f"migration {migration.name} waited too long for a table that others are using:"
            " end their open transactions (SHOW PROCESSLIST), then run novel migrate again."
        )
    return explain(error, conn.address) or Problem(
        f"migration {migration.name} failed at «{step.partition(chr(10))[0]}»: {error.args[-1]}."
        " Mend the cause, then run novel migrate again: what is done is not repeated."
    )
