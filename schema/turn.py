"""Whoever changes the schema does so alone: a named lock of the server, which a lost connection releases by itself."""

import contextlib
import hashlib
from collections.abc import Iterator

import pymysql

from runtime.problems import Problem
from schema.connection import Connection

_LOCK = "SELECT GET_LOCK(%s, %s)"
_UNLOCK = "SELECT RELEASE_LOCK(%s)"


@contextlib.contextmanager
def taken(conn: Connection, *, lock_seconds: int) -> Iterator[None]:
    """Our turn at the tables of this database and prefix, for the block."""
    # Names of locks are global to the server and at most 64 characters long.
    place = f"{conn.address.database}.{conn.table_prefix}"
    name = "novel_migrate_" + hashlib.sha256(place.encode()).hexdigest()[:32]
    row = conn.fetch_one(_LOCK, (name, lock_seconds))
    if not row or row[0] != 1:
        raise Problem(
            f"another migration of this database has been running for more than {lock_seconds} seconds."
            " Wait for it, or raise NOVEL_MIGRATION_LOCK_SECONDS."
        )
    try:
        yield
    finally:
        with contextlib.suppress(pymysql.MySQLError):  # a lost connection has released it already
            conn.fetch_one(_UNLOCK, (name,))
