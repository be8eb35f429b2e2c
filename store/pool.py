"""The pool of asynchronous connections, and the two ways to use one.

`reading()` lends a connection in autocommit mode: every SELECT sees what is committed, and no snapshot stays open.
`transaction(work)` runs `work(conn)` between START TRANSACTION and COMMIT, and runs it again, whole, when the server
gave the transaction up (deadlock, lock wait, certification) or the connection broke before COMMIT. So `work` may run
several times: it touches nothing but the database. A connection whose borrower was cancelled in the middle of a
statement is thrown away, because its answer would reach the next borrower.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from asyncmy.errors import MySQLError
from prometheus_client import Counter, Gauge

from runtime import logs
from runtime.addresses import DatabaseAddress
from runtime.settings import DatabaseSettings
from schema import session
from schema.connection import require_address
from store import connection, errors, retry
from store.connection import Connection

log = logs.get(__name__)

T = TypeVar("T")
MAX_AGE_SECONDS = 1800.0
CHECK_AFTER_IDLE_SECONDS = 30.0
# No transaction of ours stands still for so long, unless its process does.
IDLE_SECONDS = 60.0

_PROBE = "SELECT 1"

IN_USE = Gauge("novel_database_connections_in_use", "Connections lent out", multiprocess_mode="livesum")
OPEN = Gauge("novel_database_connections_open", "Connections open", multiprocess_mode="livesum")
RETRIES = Counter("novel_database_retries_total", "Transactions run again", labelnames=("error",))
DISCARDED = Counter("novel_database_discarded_total", "Connections thrown away", labelnames=("reason",))


class Pool:
    """At most `size` connections, made when they are needed."""

    def __init__(
        self,
        address: DatabaseAddress,
        *,
        table_prefix: str,
        size: int,
        wait_seconds: float,
        connect_seconds: float,
        limits: session.Limits,
    ) -> None:
        self.address = address
        self._table_prefix = table_prefix
        self._wait_seconds = wait_seconds
        self._connect_seconds = connect_seconds
        self._limits = limits
        self._places = asyncio.Semaphore(size)
        # Last in, first out: what is idle longest can age away. With the times of birth and of last use.
        self._idle: list[tuple[Connection, float, float]] = []
        self._closed = False

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Lend a connection for reads. Do nothing slow but SQL while you hold it."""
        try:
            async with self._lent() as conn:
                yield conn
        except MySQLError as error:
            if errors.is_lost(error) or errors.is_unavailable(error):
                raise errors.DatabaseUnavailable(f"the database is away: {error}") from error
            raise

    async def transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in a transaction, again and whole where that can help; returns what it returned."""
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._lent() as conn:
                    return await _attempt(conn, work)
            except MySQLError as error:
                lost = errors.is_lost(error)
                if errors.is_unavailable(error):
                    raise errors.DatabaseUnavailable(f"the database refuses for now: {error}") from error
                if not (lost or errors.is_retryable(error)):
                    raise
                if attempt >= retry.MAX_ATTEMPTS:
                    raise errors.DatabaseUnavailable(f"gave up after {attempt} attempts: {error}") from error
                RETRIES.labels("lost" if lost else str(errors.number(error))).inc()
                log.info("database.transaction_retried", attempt=attempt, error=errors.number(error))
                await asyncio.sleep(retry.delay_seconds(attempt, random.random()))  # noqa: S311

    async def close(self) -> None:
        """Close what is idle; what is still lent closes when it comes back."""
        self._closed = True
        while self._idle:
            conn, _, _ = self._idle.pop()
            OPEN.dec()
            with contextlib.suppress(MySQLError, OSError):
                await conn.close()

    @contextlib.asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        await self._wait_for_place()
        try:
            conn, born = await self._take()
            IN_USE.inc()
            try:
                yield conn
            finally:
                IN_USE.dec()
                self._give_back(conn, born)
        finally:
            self._places.release()

    async def _wait_for_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()  # at once, without the cost of a timeout
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise errors.DatabaseUnavailable("every database connection is in use") from None

    async def _take(self) -> tuple[Connection, float]:
        while self._idle:
            conn, born, used = self._idle.pop()
            now = time.monotonic()
            if not conn.is_reusable:
                self._throw_away(conn, "closed")
            elif now - born > MAX_AGE_SECONDS:
                self._throw_away(conn, "age")
            elif now - used < CHECK_AFTER_IDLE_SECONDS or await self._answers(conn):
                return conn, born
        conn = await connection.connect(
            self.address,
            table_prefix=self._table_prefix,
            connect_seconds=self._connect_seconds,
            limits=self._limits,
        )
        OPEN.inc()
        return conn, time.monotonic()

    async def _answers(self, conn: Connection) -> bool:
        try:
            await conn.fetch_one(_PROBE)
        except (MySQLError, OSError, errors.StoreError):
            self._throw_away(conn, "closed")
            return False
        except BaseException:
            self._throw_away(conn, "cancelled")
            raise
        return True

    def _give_back(self, conn: Connection, born: float) -> None:
        if self._closed:
            self._throw_away(conn, "pool closed")
        elif conn.is_reusable:
            self._idle.append((conn, born, time.monotonic()))
        else:
            self._throw_away(conn, "unfinished")

    def _throw_away(self, conn: Connection, reason: str) -> None:
        DISCARDED.labels(reason).inc()
        OPEN.dec()
        conn.discard()


async def _attempt(conn: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
    await conn.begin()
    try:
        result = await work(conn)
        if conn.aborted is not None:
            # Galera can report a conflict at UPDATE and still answer OK to COMMIT: what `work` swallowed counts.
            raise conn.aborted
    except asyncio.CancelledError:
        conn.discard()
        raise
    except BaseException:
        if conn.is_reusable:
            await _roll_back(conn)
        raise
    try:
        await conn.commit()
    except (MySQLError, errors.DatabaseUnavailable) as error:
        if isinstance(error, errors.DatabaseUnavailable) or errors.is_uncertain(error):
            raise errors.CommitUncertain("the connection broke during COMMIT") from error
        await _roll_back(conn)
        raise
    except asyncio.CancelledError:
        conn.discard()
        raise
    return result


async def _roll_back(conn: Connection) -> None:
    try:
        await conn.rollback()
    except (MySQLError, OSError, errors.StoreError):
        conn.discard()


def from_settings(settings: DatabaseSettings, *, idle_transaction_seconds: float = IDLE_SECONDS) -> Pool:
    return Pool(
        require_address(settings),
        table_prefix=settings.table_prefix,
        size=settings.pool_size,
        wait_seconds=settings.pool_wait_seconds,
        connect_seconds=settings.connect_seconds,
        limits=session.Limits(
            statement_seconds=settings.statement_seconds,
            row_lock_seconds=settings.lock_wait_seconds,
            table_lock_seconds=settings.lock_wait_seconds,
            idle_transaction_seconds=math.ceil(idle_transaction_seconds),
        ),
    )
