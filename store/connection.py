"""One asynchronous connection: runs a statement at a time, and knows whether it may be used again."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncmy
from asyncmy.errors import MySQLError

from runtime.addresses import DatabaseAddress
from schema import dialect, prefix, session
from store import errors

Row = tuple[Any, ...]

# The server ends a statement at its limit; if even that does not reach us, the network or the server is gone.
NETWORK_GRACE_SECONDS = 5.0


class Connection:
    """SQL goes in as written for `wp_` tables, with `%s` for values. Rows come out as tuples."""

    __slots__ = ("_cursor", "_deadline_seconds", "_prefix", "_raw", "_unfinished", "aborted", "dialect")

    def __init__(self, raw: Any, *, table_prefix: str, statement_seconds: float) -> None:
        self._raw = raw
        self._cursor = raw.cursor()
        self._prefix = table_prefix
        self._deadline_seconds = statement_seconds + NETWORK_GRACE_SECONDS
        self._unfinished = False
        self.aborted: MySQLError | None = None
        """The error with which the server gave up this transaction, even if its work swallowed the error."""
        self.dialect = dialect.detect(raw.get_server_info())

    @property
    def is_reusable(self) -> bool:
        """False once a statement was begun and its answer not read: the next reader would get that answer."""
        return not self._unfinished and self._raw.connected and not self._raw._stream_broken

    async def fetch_all(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        await self._run(self._cursor.execute, sql, tuple(parameters) or None)
        return list(self._cursor._rows or ())

    async def fetch_one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        rows = await self.fetch_all(sql, parameters)
        return rows[0] if rows else None

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; returns how many rows it changed."""
        return await self._run(self._cursor.execute, sql, tuple(parameters) or None)

    async def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """Run an INSERT for many rows in one round trip; returns how many rows it changed."""
        return await self._run(self._cursor.executemany, sql, rows) if rows else 0

    async def begin(self) -> None:
        self.aborted = None
        await self._run(self._raw.query, "START TRANSACTION")

    async def commit(self) -> None:
        await self._run(self._raw.query, "COMMIT")

    async def rollback(self) -> None:
        await self._run(self._raw.query, "ROLLBACK")
        self.aborted = None

    def discard(self) -> None:
        """Close the socket at once: the server rolls back whatever was open."""
        self._unfinished = True
        self._raw.close()

    async def close(self) -> None:
        await self._raw.ensure_closed()

    async def _run(self, call: Any, sql: str, *arguments: Any) -> int:
        if self._unfinished:
            raise RuntimeError("a connection runs one statement at a time")
        self._unfinished = True
        try:
            async with asyncio.timeout(self._deadline_seconds):
                changed: int = await call(prefix.rewrite(sql, self._prefix), *arguments)
        except TimeoutError as error:
            raise errors.DatabaseUnavailable("the database gave no answer in time") from error
        except MySQLError as error:
            self._unfinished = errors.is_lost(error)
            if errors.is_retryable(error):
                self.aborted = error
            if errors.number(error) in errors.STATEMENT_TIMEOUTS:
                raise errors.StatementTimeout("a statement took longer than it may") from error
            raise
        self._unfinished = False
        return changed


async def connect(
    address: DatabaseAddress, *, table_prefix: str, connect_seconds: float, limits: session.Limits
) -> Connection:
    """Open a connection and set its session, or raise DatabaseUnavailable."""
    try:
        async with asyncio.timeout(connect_seconds):
            raw = await asyncmy.connect(
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password,
                database=address.database,
                charset="utf8mb4",
                autocommit=True,
            )
            connection = Connection(raw, table_prefix=table_prefix, statement_seconds=limits.statement_seconds)
            try:
                for sql, parameters in session.statements(connection.dialect, limits):
                    await connection.execute(sql, parameters)
            except BaseException:
                connection.discard()
                raise
    except (MySQLError, OSError, TimeoutError) as error:
        raise errors.DatabaseUnavailable(f"cannot connect to {address.place}: {error}") from error
    return connection
