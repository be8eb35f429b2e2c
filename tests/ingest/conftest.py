"""A served ingest API, and crawlers with keys to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schema.connection import Connection
from store import api_keys
from tests.ingest.client import Crawler
from tests.processes import Served, serving

MakeCrawler = Callable[..., Crawler]


@pytest.fixture
def served(tmp_path: Path, environ: dict[str, str]) -> Iterator[Served]:
    # Most tests push more than a crawler may in a minute; quotas have tests of their own.
    variables = {
        "NOVEL_INGEST_REQUESTS_PER_MINUTE": "100000",
        "NOVEL_INGEST_BYTES_PER_MINUTE": str(1 << 40),
        "NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE": "1000000",
    }
    with serving(tmp_path, environ | variables, "ingest") as served:
        yield served


@pytest.fixture
def make_key(conn: Connection, environ: dict[str, str]) -> Callable[..., tuple[str, str]]:
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
def make_crawler(served: Served, make_key: Callable[..., tuple[str, str]]) -> MakeCrawler:
    def make(*permissions: str, sources: tuple[str, ...] | None = None) -> Crawler:
        return Crawler(served.port, *make_key(*permissions, sources=sources))

    return make


@pytest.fixture
def crawler(make_crawler: MakeCrawler) -> Crawler:
    return make_crawler()
