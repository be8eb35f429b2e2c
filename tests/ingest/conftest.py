"""A served ingest API, and crawlers with keys to it."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runtime import children
from runtime.private_redis import PrivateRedis
from schema.connection import Connection
from store import api_keys
from tests.ingest.client import Crawler
from tests.processes import Served, serving

MakeCrawler = Callable[..., Crawler]
MakeKey = Callable[..., tuple[str, str]]
ServeWith = Callable[..., Served]

# Most tests push more than a crawler may in a minute; quotas have tests of their own.
UNLIMITED = {
    "NOVEL_INGEST_REQUESTS_PER_MINUTE": "100000",
    "NOVEL_INGEST_BYTES_PER_MINUTE": str(1 << 40),
    "NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE": "1000000",
}


class Servers:
    """Servers that stay for all tests of a module: those that want the same settings share one."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._started: dict[tuple[tuple[str, str], ...], Served] = {}

    def find(self, variables: dict[str, str]) -> Served:
        mark = tuple(sorted(variables.items()))
        if mark not in self._started or self._started[mark].process.poll() is not None:
            self._started[mark] = self._stack.enter_context(serving(self._directory, variables, "ingest"))
        return self._started[mark]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture
def serve_with(servers: Servers, environ: dict[str, str]) -> ServeWith:
    """A server with these variables beside the usual ones."""
    return lambda **variables: servers.find(environ | UNLIMITED | variables)


@pytest.fixture
def served(serve_with: ServeWith) -> Served:
    return serve_with()


class OwnRedis:
    """A Redis that tests may kill."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._private = PrivateRedis(directory)
        self._private.prepare()
        self.url = self._private.url
        self.start()

    def start(self) -> None:
        self.child = children.start(self._private.command())
        self._private.wait(self.child)

    def kill(self, *, and_forget: bool = False) -> None:
        self.child.process.kill()
        self.child.process.wait()
        if and_forget:
            shutil.rmtree(self._directory / "appendonlydir")


@pytest.fixture
def own_redis(scratch: Path) -> Iterator[OwnRedis]:
    redis = OwnRedis(Path(tempfile.mkdtemp(prefix="redis-", dir=scratch)))
    yield redis
    redis.child.stop()


def written(conn: Connection) -> dict[str, int]:
    """How many rows there are in each table that accepting a request writes to, where there are any."""
    tables = ("ingest_requests", "ingest_jobs", "ingest_payload_blobs", "ingest_ready", "nonce_replay")
    counts = {table: conn.fetch_all(f"SELECT COUNT(*) FROM wp_novel_{table}")[0][0] for table in tables}
    return {table: count for table, count in counts.items() if count}


def assert_nothing_is_half_written(conn: Connection) -> None:
    """Each request has all its jobs, each job its place in a blob, and each blob its unit that waits."""
    halves = conn.fetch_all(
        "SELECT r.request_id, r.accepted_items, COUNT(j.id) FROM wp_novel_ingest_requests r"
        " LEFT JOIN wp_novel_ingest_jobs j ON j.request_id = r.request_id WHERE r.job_type <> 'rebuild_stats'"
        " GROUP BY r.request_id, r.accepted_items HAVING r.accepted_items <> COUNT(j.id)"
    )
    assert halves == []
    [(jobs, orphans)] = conn.fetch_all(
        "SELECT COUNT(*), COUNT(*) - COUNT(b.id) FROM wp_novel_ingest_jobs j"
        " LEFT JOIN wp_novel_ingest_payload_blobs b"
        " ON b.id = j.payload_blob_id AND j.payload_offset + j.payload_size_bytes <= b.payload_size_bytes"
    )
    assert orphans == 0
    [(ready, items)] = conn.fetch_all("SELECT COUNT(*), COALESCE(SUM(items), 0) FROM wp_novel_ingest_ready")
    assert (items, ready) == (jobs, conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_payload_blobs")[0][0])


@pytest.fixture
def make_key(conn: Connection, environ: dict[str, str]) -> MakeKey:
    def make(*permissions: str, sources: tuple[str, ...] | None = None) -> tuple[str, str]:
        return api_keys.create(
            conn,
            name="test",
            permissions=permissions or api_keys.PERMISSIONS,
            sources=sources,
            master_key=environ["NOVEL_MASTER_KEY"],
            operator="test",
        )

    return make


@pytest.fixture
def make_crawler(served: Served, make_key: MakeKey) -> MakeCrawler:
    def make(*permissions: str, sources: tuple[str, ...] | None = None) -> Crawler:
        return Crawler(served.port, *make_key(*permissions, sources=sources))

    return make


@pytest.fixture
def crawler(make_crawler: MakeCrawler) -> Crawler:
    return make_crawler()
