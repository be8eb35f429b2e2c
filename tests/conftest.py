"""Real servers for the tests: each test process starts a MariaDB and a Redis of its own, with one database.

Tables are emptied between tests, so a test may write what it likes. With NOVEL_DATABASE_URL set, the tests use a new
database on that server instead (the user must be allowed to create it).
"""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from runtime import children, private_mariadb, settings
from runtime.addresses import DatabaseAddress, parse_database
from runtime.private_redis import PrivateRedis
from runtime.settings import Settings
from schema import connection, migrator
from schema.connection import Connection
from schema.private_database import PrivateDatabase
from store import pool as pools
from store.pool import Pool

ROOT = Path(__file__).parent.parent
MASTER_KEY = "a master key for tests, long enough"

# A shell starts its background jobs deaf to Ctrl-C, and what they start inherits that: our children must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A short path: Unix sockets live below it."""
    directory = Path(tempfile.mkdtemp(prefix="novel-test-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class DatabaseServer:
    """The server the tests run on. `private` is None when it is someone else's."""

    address: DatabaseAddress
    private: PrivateDatabase | None

    def as_root(self) -> "pymysql.Connection[Any]":
        """As the administrator, who is whoever runs the server."""
        if self.private is None:
            pytest.skip("needs administrator's rights on the database server")
        return pymysql.connect(
            unix_socket=str(self.private.server.socket), user=private_mariadb.user_name(), autocommit=True
        )


@pytest.fixture(scope="session")
def database_server(scratch: Path) -> Iterator[DatabaseServer]:
    if url := os.environ.get("NOVEL_DATABASE_URL"):
        yield DatabaseServer(parse_database(url), None)
        return
    private = PrivateDatabase(scratch / "db", and_databases_like_it=True)
    child = private.start()
    yield DatabaseServer(private.address, private)
    child.stop()


@pytest.fixture(scope="session")
def redis_url(scratch: Path) -> Iterator[str]:
    if url := os.environ.get("NOVEL_REDIS_URL"):
        yield url
        return
    redis = PrivateRedis(scratch / "redis")
    redis.prepare()
    child = children.start(redis.command())
    redis.wait(child)
    yield redis.url
    child.stop()


DatabaseFactory = Callable[[], DatabaseAddress]


@pytest.fixture(scope="session")
def make_database(database_server: DatabaseServer) -> Iterator[DatabaseFactory]:
    """Makes an empty database; all of them are dropped in the end."""
    made: list[str] = []
    address = database_server.address
    admin = pymysql.connect(
        host=address.host, port=address.port, user=address.user, password=address.password, autocommit=True
    )

    def make() -> DatabaseAddress:
        name = f"{address.database}_{os.getpid()}_{secrets.token_hex(4)}"
        with admin.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci")
        made.append(name)
        return replace(address, database=name)

    yield make
    with admin.cursor() as cursor:
        for name in made:
            cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
    admin.close()


@pytest.fixture
def empty_settings(make_database: DatabaseFactory) -> Settings:
    """Settings for a database in which nothing is yet."""
    return settings.load({"NOVEL_DATABASE_URL": make_database().url})


@pytest.fixture
def empty_conn(empty_settings: Settings) -> Iterator[Connection]:
    with connection.connect(empty_settings.database) as conn:
        yield conn


@pytest.fixture(scope="session")
def migrated_url(make_database: DatabaseFactory) -> str:
    address = make_database()
    with connection.connect(settings.load({"NOVEL_DATABASE_URL": address.url}).database) as conn:
        migrator.migrate(conn, lock_seconds=10)
        _empty_tables(conn)  # of what the migrations logged
    return address.url


@pytest.fixture
def environ(migrated_url: str, redis_url: str) -> Iterator[dict[str, str]]:
    """The environment of a service on the migrated database. Tables are emptied after the test."""
    environ = {
        "NOVEL_DATABASE_URL": migrated_url,
        "NOVEL_REDIS_URL": redis_url,
        "NOVEL_MASTER_KEY": MASTER_KEY,
    }
    yield environ
    with connection.connect(settings.load(environ).database) as conn:
        _empty_tables(conn)


@pytest.fixture
def test_settings(environ: dict[str, str]) -> Settings:
    return settings.load(environ)


@pytest.fixture
def conn(test_settings: Settings) -> Iterator[Connection]:
    with connection.connect(test_settings.database) as conn:
        yield conn


@pytest.fixture
async def pool(test_settings: Settings) -> AsyncIterator[Pool]:
    pool = pools.from_settings(test_settings.database)
    yield pool
    await pool.close()


NovelCommand = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def novel() -> NovelCommand:
    """Runs the command line in a process of its own, with only the given NOVEL_* variables."""

    def run(*arguments: str, stdin: str | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(novel_executable()), *arguments],
            env=clean_environ(variables),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def novel_executable() -> Path:
    import sys

    return Path(sys.executable).parent / "novel"


def clean_environ(variables: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NOVEL_")}
    return kept | variables


def _empty_tables(conn: Connection) -> None:
    """One look at which tables have rows, then DELETE from those: far cheaper than TRUNCATE of all."""
    tables = [row[0] for row in conn.fetch_all("SHOW TABLES")]
    probe = " UNION ALL ".join(f"SELECT '{table}' FROM (SELECT 1 FROM `{table}` LIMIT 1) t" for table in tables)
    for (table,) in conn.fetch_all(probe):
        keep_version = " WHERE option_name <> 'novel_db_version'" if table.endswith("_options") else ""
        conn.execute(f"DELETE FROM `{table}`{keep_version}")
