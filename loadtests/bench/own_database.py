"""A database for one case alone, beside the one with the catalogue: made, migrated, and most often dropped again."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from loadtests.bench.case import Bench
from loadtests.catalogue import filling
from runtime.problems import Problem
from schema.connection import Connection, connect, require_address

MAX_NAME_LETTERS = 64

# Names cannot be parameters; `runtime.addresses` lets only letters, digits, $, - and _ through.
_CREATE = "CREATE DATABASE IF NOT EXISTS `{database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci"
_DROP = "DROP DATABASE IF EXISTS `{database}`"


def beside(bench: Bench, suffix: str) -> Bench:
    """The benchmark on a database that is its own database's name with a suffix."""
    address = require_address(bench.settings.database)
    name = f"{address.database}_{suffix}"
    if len(name) > MAX_NAME_LETTERS:
        raise Problem(
            f"the name of the database {name!r} would be too long: give the one in NOVEL_DATABASE_URL a shorter."
        )
    database = replace(bench.settings.database, address=replace(address, database=name))
    return replace(bench, settings=replace(bench.settings, database=database))


@contextlib.contextmanager
def kept(bench: Bench, suffix: str) -> Iterator[Connection]:
    """One that is there from an earlier run, if it has the same tables, or else a new one; it stays."""
    own = beside(bench, suffix)
    name = require_address(own.settings.database).database
    with connect(bench.settings.database, statement_seconds=0) as outside:
        outside.execute_as_is(_CREATE.format(database=name))
    with connect(own.settings.database, statement_seconds=0) as conn:
        filling.ensure_schema(conn, lock_seconds=own.settings.database.migration_lock_seconds)
        yield conn


@contextlib.contextmanager
def made(bench: Bench, suffix: str) -> Iterator[Connection]:
    """Make it anew, with every table; yields a connection to it. It is dropped in the end."""
    own = beside(bench, suffix)
    name = require_address(own.settings.database).database
    with connect(bench.settings.database, statement_seconds=0) as outside:
        outside.execute_as_is(_DROP.format(database=name))
        outside.execute_as_is(_CREATE.format(database=name))
        try:
            with connect(own.settings.database, statement_seconds=0) as conn:
                filling.ensure_schema(conn, lock_seconds=own.settings.database.migration_lock_seconds)
                yield conn
        finally:
            outside.execute_as_is(_DROP.format(database=name))
