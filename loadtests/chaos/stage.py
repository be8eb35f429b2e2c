"""Where it happens: a private MariaDB and Redis, an empty database, a served ingest API, and a key to it."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cli import serve
from ingest import routes
from loadtests import place
from loadtests.bench import own_database
from loadtests.bench.case import Bench
from loadtests.catalogue.sizes import QUICK
from loadtests.chaos.feed import SOURCES
from loadtests.chaos.model import CHAPTERS, STORIES
from runtime import children, server
from runtime.children import Child
from runtime.private_redis import PrivateRedis
from runtime.settings import Settings
from schema.connection import require_address
from store import api_keys

DIRECTORY = Path(".local/chaos")
HOST = "127.0.0.1"
# The shortest there may be.
LEASE_SECONDS = 1.0
# As usual: what becomes a dead letter because workers were killed over it is replayed.
MAX_CRASHES = 5
PATHS = {STORIES: routes.STORIES, CHAPTERS: routes.CHAPTERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the service is set."""

    lease_seconds: float = LEASE_SECONDS
    max_crashes: int = MAX_CRASHES

    def variables(self) -> dict[str, str]:
        return {
            "NOVEL_LEASE_SECONDS": f"{self.lease_seconds:g}",
            "NOVEL_MAX_CRASHES": str(self.max_crashes),
            # An item may have to wait for its story until the end. Two halves of a swap that came apart have to be
            # claimed together, which is chance: so they have to come often.
            "NOVEL_MAX_ATTEMPTS": "1000",
            "NOVEL_RETRY_SECONDS": "0.4",
            "NOVEL_RECOUNT_WINDOW_SECONDS": "1",
            "NOVEL_POLL_SECONDS": "0.2",
            "NOVEL_INGEST_REQUESTS_PER_MINUTE": "1000000",
            "NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE": "1000000",
            "NOVEL_INGEST_BYTES_PER_MINUTE": str(1 << 40),
            "NOVEL_QUEUE_MAX_ITEMS": str(1 << 40),
            "NOVEL_QUEUE_MAX_BYTES": str(1 << 50),
            "NOVEL_INGEST_ALLOWED_ADDRESSES": "",
            "NOVEL_LOG_FORMAT": "json",
            "NOVEL_LOG_LEVEL": "info",
        }


@dataclass(frozen=True, slots=True)
class Stage:
    settings: Settings
    directory: Path
    environ: Mapping[str, str]
    """Of every process of the service."""
    port: int
    key_id: str
    secret: str


@contextlib.contextmanager
def opened(environ: Mapping[str, str], rules: Rules, *, directory: Path = DIRECTORY) -> Iterator[Stage]:
    """Everything but the workers, for as long as the block runs."""
    with contextlib.ExitStack() as stack:
        settings = stack.enter_context(place.opened(environ, directory=directory))
        bench = Bench(settings, QUICK)
        conn = stack.enter_context(own_database.made(bench, "chaos"))
        own = own_database.beside(bench, "chaos").settings
        master_key = secrets.token_urlsafe(32)
        key_id, secret = api_keys.create(
            conn,
            name="chaos",
            permissions=api_keys.PERMISSIONS,
            master_key=master_key,
            operator="chaos",
            sources=SOURCES,
        )
        redis_url = stack.enter_context(_redis(own, directory))
        ours = rules.variables() | {
            "NOVEL_DATABASE_URL": require_address(own.database).url,
            "NOVEL_TABLE_PREFIX": own.database.table_prefix,
            "NOVEL_REDIS_URL": redis_url,
            "NOVEL_MASTER_KEY": master_key,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NOVEL_")}
        _, port = stack.enter_context(_served(own, kept | ours, directory / "ingest.log"))
        yield Stage(own, directory, kept | ours, port, key_id, secret)


@contextlib.contextmanager
def _served(settings: Settings, environ: Mapping[str, str], output: Path) -> Iterator[tuple[Child, int]]:
    output.unlink(missing_ok=True)
    with server.listen(HOST, 0) as listener:
        command = serve.child_command("ingest", listener, http=settings.http, name="the ingest service")
        child = children.start(replace(command, environ=environ, output=output))
        try:
            children.wait_until(lambda: server.answers(listener, "/healthz"), child)
            port: int = listener.getsockname()[1]
        except BaseException:
            child.stop()
            raise
    try:
        yield child, port
    finally:
        child.stop()


@contextlib.contextmanager
def _redis(settings: Settings, directory: Path) -> Iterator[str]:
    """The Redis that is set, else one of our own."""
    if settings.redis.address is not None:
        yield settings.redis.address.url
        return
    private = PrivateRedis((directory / "redis").absolute())
    private.prepare()
    child = children.start(private.command())
    try:
        private.wait(child)
        yield private.url
    finally:
        child.stop()
