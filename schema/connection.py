"""A plain, synchronous connection: for migrations, checks and command lines. Services use `store.pool`."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pymysql

from runtime.addresses import DatabaseAddress
from runtime.problems import Problem
from runtime.settings import DatabaseSettings
from schema import dialect, prefix, session

Row = tuple[Any, ...]
# For those who catch it without knowing the driver.
ServerError = pymysql.MySQLError


class Connection:
    """A connection that knows its dialect and its table prefix. Autocommit is on."""

    def __init__(self, raw: Any, *, address: DatabaseAddress, table_prefix: str) -> None:
        self.raw = raw  # pymysql's; its stubs lack what we need
        self.address = address
        self.table_prefix = table_prefix
        self.dialect = dialect.detect(raw.server_version)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; returns how many rows it changed or found."""
        with self.raw.cursor() as cursor:
            changed: int = cursor.execute(self._written(sql), tuple(parameters) or None)
            return changed

    def execute_as_is(self, sql: str) -> None:
        """Run a statement that has the real names of tables in it already."""
        with self.raw.cursor() as cursor:
            cursor.execute(sql)

    def fetch_all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self.raw.cursor() as cursor:
            cursor.execute(self._written(sql), tuple(parameters) or None)
            return list(cursor.fetchall())

    def fetch_one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        rows = self.fetch_all(sql, parameters)
        return rows[0] if rows else None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block or nothing of it."""
        self.raw.begin()
        try:
            yield
        except BaseException:
            if self.raw.open:
                self.raw.rollback()
            raise
        self.raw.commit()

    def table(self, written: str) -> str:
        """The real name of a table written as `wp_...`."""
        return prefix.rewrite(written, self.table_prefix)

    def close(self) -> None:
        self.raw.close()

    def _written(self, sql: str) -> str:
        return prefix.rewrite(self.dialect.translate(sql), self.table_prefix)


@contextlib.contextmanager
def connect(settings: DatabaseSettings, *, statement_seconds: float | None = None) -> Iterator[Connection]:
    """Open a connection for the block. Failures a person can mend become a one-line Problem, also inside it."""
    address = require_address(settings)
    limits = session.Limits(
        statement_seconds=settings.statement_seconds if statement_seconds is None else statement_seconds,
        row_lock_seconds=settings.lock_wait_seconds,
        table_lock_seconds=settings.migration_lock_seconds,
    )
    try:
        raw = _open(address, seconds=settings.connect_seconds)
        try:
            connection = Connection(raw, address=address, table_prefix=settings.table_prefix)
            for sql, parameters in session.statements(connection.dialect, limits):
                connection.execute(sql, parameters)
            raw._read_timeout = None  # a migration may take hours; the server bounds everything else
            yield connection
        finally:
            if raw.open:
                raw.close()
    except pymysql.MySQLError as error:
        problem = explain(error, address)
        if problem is None:
            raise
        raise problem from error


def _open(address: DatabaseAddress, *, seconds: float) -> Any:
    try:
        return pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password.encode(),  # a str would have to be latin-1
            database=address.database,
            charset="utf8mb4",
            connect_timeout=max(1, round(seconds)),
            read_timeout=max(1, round(seconds)),  # something may accept and then say nothing
            autocommit=True,
        )
    except pymysql.MySQLError as error:
        if isinstance(error.__context__, TimeoutError):
            raise Problem(
                f"nothing answered at {address.server} within {seconds:g} seconds."
                " See whether that is a database server, and whether it hangs."
            ) from error
        raise


def require_address(settings: DatabaseSettings) -> DatabaseAddress:
    if settings.address is None:
        raise Problem(
            "NOVEL_DATABASE_URL is not set. Set it to mysql://user:password@host:3306/database,"
            " or run everything on this machine with: novel up"
        )
    return settings.address


def explain(error: BaseException, address: DatabaseAddress) -> Problem | None:
    """What a person should do about a database error, by its number; None when it is not theirs to mend."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    who = f"{address.user!r} at {address.server}"
    if number in (2002, 2003):
        return Problem(f"no database server answers at {address.server}. Start it, or correct NOVEL_DATABASE_URL.")
    if number in (2006, 2013, 2014, 1927, 1053):
        return Problem(
            f"the database server at {address.server} closed the connection. See its error log, then try again."
        )
    if number in (1045, 1698, 1130):
        return Problem(f"the database refuses {who}: wrong user or password. Correct NOVEL_DATABASE_URL.")
    if number == 1049:
        return Problem(
            f"there is no database {address.database!r} at {address.server}."
            f" Run there: CREATE DATABASE `{address.database}`; or correct NOVEL_DATABASE_URL."
        )
    if number == 1044:
        return Problem(
            f"{who} may not use the database {address.database!r}. Run there as its administrator:"
            f" GRANT ALL PRIVILEGES ON `{address.database}`.* TO ...;"
        )
    if number in (1142, 1227, 1370):
        return Problem(
            f"{who} lacks a privilege ({error.args[1]}). Run there as its administrator:"
            f" GRANT ALL PRIVILEGES ON `{address.database}`.* TO ...;"
        )
    if number in (1290, 1836, 1792):
        return Problem(
            f"the database server at {address.server} is read-only."
            " Point NOVEL_DATABASE_URL at the primary, or make it writable: SET GLOBAL read_only = 0;"
        )
    if number == 1205:
        return Problem(
            f"the database at {address.server} waited too long for a table or row that others are using."
            " End their open transactions (SHOW PROCESSLIST), then try again."
        )
    if number in (1451, 3730):
        return Problem(
            f"a foreign key points at a table that is to go ({error.args[1]})."
            " Drop that foreign key first: novel schema check names those on our own tables."
        )
    if number == 1040:
        return Problem(f"the database server at {address.server} has no free connection (max_connections).")
    return None
