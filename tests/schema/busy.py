"""Others at work on the same database: open transactions that hold its tables, and what the server says of a waiter."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import pymysql

from runtime.addresses import DatabaseAddress
from runtime.settings import DatabaseSettings
from schema import connection, migrator
from schema.connection import Connection
from schema.migrations import Migration

T = TypeVar("T")
PATIENCE_SECONDS = 30

FOR_A_TABLE = "Waiting for table metadata lock"
FOR_A_MIGRATOR = "User lock"


def until(condition: Callable[[], T]) -> T:
    """The first true answer; a test that waits in vain fails instead of hanging."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return answer


@contextlib.contextmanager
def transaction(address: DatabaseAddress, statement: str) -> Iterator["pymysql.Connection[Any]"]:
    """Someone who has run a statement and left the transaction open."""
    other = pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        database=address.database,
    )
    try:
        with other.cursor() as cursor:
            cursor.execute(statement)
        yield other
    finally:
        other.close()


def waiters(conn: Connection, state: str) -> list[int]:
    """Ids of the connections to this database that wait like this."""
    rows = conn.fetch_all(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = %s AND STATE = %s", (conn.address.database, state)
    )
    return [row[0] for row in rows]


def wait_for_waiter(conn: Connection, state: str) -> int:
    return until(lambda: waiters(conn, state))[0]


class Running(Generic[T]):
    """A call in a thread of its own; its result, or its exception, is had by `result()`."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._outcome: list[T] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            self._error.append(error)

    def result(self) -> T:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "waited in vain"
        if self._error:
            raise self._error[0]
        return self._outcome[0]


def migrate_elsewhere(
    settings: DatabaseSettings, *, prefix: str = "wp_", lock_seconds: int = 20
) -> Running[list[Migration]]:
    """A migrator on a connection of its own."""

    def run() -> list[Migration]:
        with connection.connect(replace(settings, table_prefix=prefix), statement_seconds=0) as conn:
            return migrator.migrate(conn, lock_seconds=lock_seconds)

    return Running(run)
