"""Where load tests run: a private MariaDB in a folder of their own, or a database of their own on a given server.

One load test at a time uses the folder. Whatever was started is stopped when the block is left, however it is left.
"""

import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pymysql

from runtime import settings
from runtime.addresses import DatabaseAddress
from runtime.alone import alone
from runtime.private_server import private_directory
from runtime.problems import Problem
from runtime.settings import DatabaseSettings, Settings
from schema.connection import connect
from schema.private_database import PrivateDatabase

DIRECTORY = Path(".local/bench")
BUFFER_POOL_MB = 2048
DATABASE_SUFFIX = "_bench"
MAX_NAME_LETTERS = 64
NO_RIGHT_TO_DATABASE = 1044

# A name cannot be a parameter; `runtime.addresses` lets only letters, digits, $, - and _ through.
_CREATE = "CREATE DATABASE IF NOT EXISTS `{database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci"


@contextlib.contextmanager
def opened(environ: Mapping[str, str], *, directory: Path = DIRECTORY) -> Iterator[Settings]:
    """The settings of a database that is ours alone while the block runs."""
    given = settings.load(environ)
    with _one_in(directory), _ended_by_sigterm():
        if given.database.address is not None:
            yield replace(given, database=_own_database(given.database, given.database.address))
            return
        private = PrivateDatabase(directory / "mariadb", and_databases_like_it=True, buffer_pool_mb=BUFFER_POOL_MB)
        server = private.start()
        try:
            yield replace(given, database=replace(given.database, address=private.address))
        finally:
            server.stop()


def bench_name(database: str) -> str:
    """The database we use beside the one we were given, which we never touch."""
    name = database if database.endswith(DATABASE_SUFFIX) else database + DATABASE_SUFFIX
    if len(name) > MAX_NAME_LETTERS:
        raise Problem(
            f"the name of the database {name!r} would be too long: give the one in NOVEL_DATABASE_URL a shorter."
        )
    return name


def _own_database(given: DatabaseSettings, address: DatabaseAddress) -> DatabaseSettings:
    own = replace(address, database=bench_name(address.database))
    with connect(given) as conn:
        try:
            conn.execute(_CREATE.format(database=own.database))
        except pymysql.MySQLError as error:
            if error.args[0] != NO_RIGHT_TO_DATABASE:
                raise
            raise Problem(
                f"{own.user!r} may not make the database {own.database!r} at {own.host}:{own.port}. Run there as its"
                f" administrator: CREATE DATABASE `{own.database}`; GRANT ALL PRIVILEGES ON `{own.database}`.* TO ...;"
            ) from error
    return replace(given, address=own)


def _one_in(directory: Path) -> contextlib.AbstractContextManager[None]:
    return alone(
        private_directory(directory.absolute()) / "lock",
        otherwise=lambda holder: f"another load test (process {holder}) is using {directory}: wait until it ends.",
    )


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that servers are stopped."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
