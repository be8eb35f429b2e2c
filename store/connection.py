"""One asynchronous connection: runs a statement at a time, and knows whether it may be used again."""

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any

import asyncmy
from asyncmy import converters
from asyncmy.constants import FIELD_TYPE
from asyncmy.errors import MySQLError

from runtime.addresses import DatabaseAddress
from schema import dialect, prefix, session
from store import errors, statements
from store.statements import Parameters, Result, Statements

Row = tuple[Any, ...]

# The server ends a statement at its limit; if even that does not reach us, the network or the server is gone.
NETWORK_GRACE_SECONDS = 5.0


def _date_or_none(text: Any) -> Any:
    """WordPress's 0000-00-00 is no date: None, as prepared statements have it, and not the driver's string."""
    value = converters.convert_datetime(text)
    return None if isinstance(value, str) else value


_CONVERSIONS = converters.conversions | {
    FIELD_TYPE.DATETIME: _date_or_none,
    FIELD_TYPE.TIMESTAMP: _date_or_none,
    FIELD_TYPE.DATE: _date_or_none,
}


class Connection:
    """SQL goes in as written for `wp_` tables, with `%s` for values. Rows come out as tuples."""

    __slots__ = ("_deadline_seconds", "_prefix", "_raw", "_statements", "_unfinished", "aborted", "dialect")

    def __init__(self, raw: Any, *, table_prefix: str, statement_seconds: float) -> None:
        self._raw = raw
        self._statements = Statements(raw)
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

    async def fetch_all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        result = await self._execute(sql, parameters, prepared=self.dialect.retypes_parameters)
        return list(result.rows or ())

    async def fetch_one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        rows = await self.fetch_all(sql, parameters)
        return rows[0] if rows else None

    async def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement; returns how many rows it changed."""
        result = await self._execute(sql, parameters, prepared=self.dialect.retypes_parameters)
        return result.affected_rows

    async def insert(self, sql: str, parameters: Parameters) -> int:
        """Run an INSERT of one row, however large; returns the id that the table gave it."""
        # Prepared on every server: a body of megabytes would be escaped, and grow, in a statement's text.
        result = await self._execute(sql, parameters, prepared=True)
        return result.insert_id

    async def execute_many(self, sql: str, rows: Sequence[Parameters]) -> int:
        """Run an INSERT for many rows; returns how many it changed.

        Call it in a transaction: many rows take several statements.
        """
        changed = 0
        for chunk in statements.chunks(rows):
            values = tuple(chain.from_iterable(chunk))
            # Prepared on every server: here the columns give the values their types.
            result = await self._execute(statements.for_rows(sql, len(chunk)), values, prepared=True)
            changed += result.affected_rows
        return changed

    async def begin(self) -> None:
        self.aborted = None
        await self._execute("START TRANSACTION")

    async def commit(self) -> None:
        await self._execute("COMMIT")

    async def rollback(self) -> None:
        await self._execute("ROLLBACK")
        self.aborted = None

    async def savepoint(self, depth: int) -> None:
        """Mark a place in the transaction to which it can be rolled back."""
        await self._execute(f"SAVEPOINT novel_{depth:d}")

    async def rollback_to(self, depth: int) -> None:
        """Undo what came after the savepoint; the transaction goes on."""
        await self._execute(f"ROLLBACK TO SAVEPOINT novel_{depth:d}")

    def discard(self) -> None:
        """Close the socket at once: the server rolls back whatever was open."""
        self._unfinished = True
        self._raw.close()

    async def close(self) -> None:
        await self._raw.ensure_closed()

    async def _execute(self, sql: str, parameters: Parameters = (), *, prepared: bool = False) -> Result:
        if self._unfinished:
            raise RuntimeError("a connection runs one statement at a time")
        sql = prefix.rewrite(sql, self._prefix)
        self._unfinished = True
        try:
            async with asyncio.timeout(self._deadline_seconds):
                # What has no values is rare or short (COMMIT), and gains nothing by being prepared.
                run = self._statements.execute if prepared and parameters else self._statements.execute_as_text
                result = await run(sql, parameters)
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
        return result


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
                password=address.password.encode(),  # a str would have to be latin-1
                database=address.database,
                charset="utf8mb4",
                conv=_CONVERSIONS,
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
