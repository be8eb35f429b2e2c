"""Connections whose time is the test's, and that go on by one statement at a time when the test says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from runtime.addresses import DatabaseAddress
from schema import session
from store.connection import Connection
from store.pool import Pool

# A lock for which somebody waits longer is one that is held by who waits for us.
LOCK_SECONDS = 1
GIVE_UP_SECONDS = 20
# What a statement gets that may have to wait for a lock, before the others go on beside it.
GRACE_SECONDS = 0.005


@dataclass
class Clock:
    """What UTC_TIMESTAMP() says on the connections of a `SteppedPool`."""

    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def after(self, seconds: float) -> datetime:
        """As the database has it: without a zone."""
        return (self.now + timedelta(seconds=seconds)).replace(tzinfo=None)


@dataclass
class Turns:
    """Lets one task that uses a `SteppedPool` run as far as its next statement."""

    is_free: bool = True
    """Whether it runs without waiting for its turn."""
    statements: list[str] = field(default_factory=list)
    """What it has sent, or is about to send."""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _go: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        """Forget whoever was here before."""
        self.statements.clear()
        self._arrived.clear()
        self._go.clear()

    async def wait(self, sql: str) -> None:
        self.statements.append(sql)
        self._arrived.set()
        if not self.is_free:
            await self._go.wait()
            self._go.clear()

    async def arrive(self, task: "asyncio.Task[Any]", *, may_wait: bool = False) -> bool:
        """Let it come to its next statement; False once it has ended. It `may_wait` for a lock that others have."""
        arrived = asyncio.create_task(self._arrived.wait())
        seconds = GRACE_SECONDS if may_wait else GIVE_UP_SECONDS
        done, _ = await asyncio.wait({task, arrived}, return_when=asyncio.FIRST_COMPLETED, timeout=seconds)
        arrived.cancel()
        assert done or may_wait, f"waits for ever in {self.statements[-1]}"
        return not task.done()

    async def next(self, task: "asyncio.Task[Any]", *, may_wait: bool = False) -> bool:
        """Let it send the statement it is at, and come to the next one; False once it has ended."""
        if self._arrived.is_set():  # else it still waits for a lock
            self._arrived.clear()
            self._go.set()
        return await self.arrive(task, may_wait=may_wait)


class SteppedConnection:
    """Sets the time and waits for its turn before each statement."""

    def __init__(self, conn: Connection, clock: Clock, turns: Turns) -> None:
        self._conn = conn
        self._clock = clock
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    async def fetch_all(self, sql: str, parameters: Any = ()) -> Any:
        return await self._in_turn(sql, self._conn.fetch_all, sql, parameters)

    async def fetch_one(self, sql: str, parameters: Any = ()) -> Any:
        return await self._in_turn(sql, self._conn.fetch_one, sql, parameters)

    async def execute(self, sql: str, parameters: Any = ()) -> Any:
        return await self._in_turn(sql, self._conn.execute, sql, parameters)

    async def execute_many(self, sql: str, rows: Any) -> Any:
        return await self._in_turn(sql, self._conn.execute_many, sql, rows)

    async def begin(self) -> Any:
        return await self._in_turn("START TRANSACTION", self._conn.begin)

    async def commit(self) -> Any:
        return await self._in_turn("COMMIT", self._conn.commit)

    async def _in_turn(self, name: str, run: Any, *arguments: Any) -> Any:
        await self._turns.wait(name)
        await self._conn.execute(f"SET timestamp = {self._clock.now.timestamp()}")
        return await cast(Awaitable[Any], run(*arguments))


class SteppedPool(Pool):
    def __init__(
        self, address: DatabaseAddress, clock: Clock, turns: Turns | None = None, *, lock_seconds: int = LOCK_SECONDS
    ) -> None:
        limits = session.Limits(statement_seconds=10, row_lock_seconds=lock_seconds, table_lock_seconds=lock_seconds)
        super().__init__(address, table_prefix="wp_", size=5, wait_seconds=10, connect_seconds=5, limits=limits)
        self.clock = clock
        self.turns = turns or Turns()

    @contextlib.asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        async with super()._lent() as conn:
            yield cast(Connection, SteppedConnection(conn, self.clock, self.turns))


@contextlib.asynccontextmanager
async def stepped_pool(
    address: DatabaseAddress, clock: Clock, turns: Turns | None = None, *, lock_seconds: int = LOCK_SECONDS
) -> AsyncIterator[SteppedPool]:
    pool = SteppedPool(address, clock, turns, lock_seconds=lock_seconds)
    try:
        yield pool
    finally:
        await pool.close()
