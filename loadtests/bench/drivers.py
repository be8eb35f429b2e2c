"""The bare drivers: one connection with the pool's session settings and nothing around it."""

import contextlib
import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import asyncmy

from loadtests.bench.case import Bench, Side, Work
from runtime.settings import DatabaseSettings
from schema import dialect, session
from schema.connection import connect, require_address

Parameters = tuple[Any, ...]
Batch = list[tuple[str, Sequence[Parameters]]]

# One call of a side's work does this many reads, so that the harness itself costs nothing.
READS_AT_ONCE = 50
STATEMENTS_CACHED = 64


@dataclass(frozen=True, slots=True)
class Driver:
    """A DB-API driver: how to connect, and whether its calls are awaited."""

    name: str
    package: str
    connect: Callable[[Bench], Any]
    is_async: bool

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


def reading(driver: Driver, sql: str, parameters: Callable[[Bench], Iterator[Parameters]]) -> Side:
    """A side that runs a SELECT with one set of parameters after the other and fetches its rows."""

    @contextlib.asynccontextmanager
    async def asynchronous(bench: Bench) -> AsyncIterator[Work]:
        async with driver.connect(bench) as conn, conn.cursor() as cursor:
            statement, values = bench.written(sql), parameters(bench)

            async def work() -> int:
                for _ in range(READS_AT_ONCE):
                    await cursor.execute(statement, next(values))
                    await cursor.fetchall()
                return READS_AT_ONCE

            yield work

    @contextlib.contextmanager
    def synchronous(bench: Bench) -> Iterator[Work]:
        with driver.connect(bench) as conn, contextlib.closing(conn.cursor()) as cursor:
            statement, values = bench.written(sql), parameters(bench)

            def work() -> int:
                for _ in range(READS_AT_ONCE):
                    cursor.execute(statement, next(values))
                    cursor.fetchall()
                return READS_AT_ONCE

            yield work

    return asynchronous if driver.is_async else synchronous


def inserting(driver: Driver, batches: Callable[[], Iterator[Batch]]) -> Side:
    """A side that writes one batch in each transaction; its units are the rows of the batch's first statement."""

    @contextlib.asynccontextmanager
    async def asynchronous(bench: Bench) -> AsyncIterator[Work]:
        async with driver.connect(bench) as conn, conn.cursor() as cursor:
            todo = batches()

            async def work() -> int:
                batch = next(todo)
                await conn.begin()
                for sql, rows in batch:
                    await cursor.executemany(bench.written(sql), rows)
                await conn.commit()
                return len(batch[0][1])

            yield work

    @contextlib.contextmanager
    def synchronous(bench: Bench) -> Iterator[Work]:
        with driver.connect(bench) as conn, contextlib.closing(conn.cursor()) as cursor:
            todo = batches()

            def work() -> int:
                batch = next(todo)
                conn.begin()
                for sql, rows in batch:
                    cursor.executemany(bench.written(sql), rows)
                conn.commit()
                return len(batch[0][1])

            yield work

    return asynchronous if driver.is_async else synchronous


# -- how each one connects -------------------------------------------------------------------------------


@contextlib.contextmanager
def _pymysql(bench: Bench) -> Iterator[Any]:
    with connect(bench.settings.database) as conn:
        yield conn.raw


def _asyncmy(*, stmt_cache_size: int) -> Callable[[Bench], AbstractAsyncContextManager[Any]]:
    @contextlib.asynccontextmanager
    async def opened(bench: Bench) -> AsyncIterator[Any]:
        conn = await asyncmy.connect(**_login(bench), charset="utf8mb4", stmt_cache_size=stmt_cache_size)
        try:
            await _set_session(conn, bench)
            yield conn
        finally:
            conn.close()

    return opened


@contextlib.asynccontextmanager
async def _aiomysql(bench: Bench) -> AsyncIterator[Any]:
    login = _login(bench)
    login["db"] = login.pop("database")
    conn = await importlib.import_module("aiomysql").connect(**login, charset="utf8mb4")
    try:
        await _set_session(conn, bench)
        yield conn
    finally:
        conn.close()


@contextlib.contextmanager
def _mariadb(bench: Bench) -> Iterator[Any]:
    with contextlib.closing(importlib.import_module("mariadb").connect(**_login(bench))) as conn:
        with contextlib.closing(conn.cursor()) as cursor:
            for sql, values in _session(conn.server_info, bench.settings.database):
                cursor.execute(sql, values)
        yield conn


async def _set_session(conn: Any, bench: Bench) -> None:
    async with conn.cursor() as cursor:
        for sql, values in _session(conn.get_server_info(), bench.settings.database):
            await cursor.execute(sql, values or None)


def _login(bench: Bench) -> dict[str, Any]:
    address = require_address(bench.settings.database)
    return {
        "host": address.host,
        "port": address.port,
        "user": address.user,
        "password": address.password,
        "database": address.database,
        "autocommit": True,
    }


def _session(server: str, database: DatabaseSettings) -> list[tuple[str, Parameters]]:
    limits = session.Limits(
        statement_seconds=database.statement_seconds,
        row_lock_seconds=database.lock_wait_seconds,
        table_lock_seconds=database.lock_wait_seconds,
    )
    return session.statements(dialect.detect(server), limits)


PYMYSQL = Driver("pymysql", "pymysql", _pymysql, is_async=False)
ASYNCMY = Driver("asyncmy", "asyncmy", _asyncmy(stmt_cache_size=0), is_async=True)
ASYNCMY_PREPARED = Driver("asyncmy_prepared", "asyncmy", _asyncmy(stmt_cache_size=STATEMENTS_CACHED), is_async=True)
AIOMYSQL = Driver("aiomysql", "aiomysql", _aiomysql, is_async=True)
MARIADB = Driver("mariadb", "mariadb", _mariadb, is_async=False)
ALL = (PYMYSQL, ASYNCMY, ASYNCMY_PREPARED, AIOMYSQL, MARIADB)
