"""A `novel serve ingest` on the benchmark's database, with quotas out of the way, and crawlers that push to it."""

import contextlib
import http.client
import os
import secrets
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cli import serve
from ingest import routes, signature
from loadtests import place
from loadtests.bench import batches
from loadtests.bench.batches import Batch
from loadtests.bench.case import Bench
from loadtests.bench.queue_tables import KEY_NAME
from runtime import children, server
from runtime.children import Child
from runtime.private_redis import PrivateRedis
from runtime.problems import Problem
from runtime.settings import HttpSettings
from schema.connection import connect, require_address
from store import api_keys

HOST = "127.0.0.1"
ANSWER_SECONDS = 120.0
OUTPUT = place.DIRECTORY / "ingest.log"

_VARIABLES = {
    "NOVEL_INGEST_REQUESTS_PER_MINUTE": "1000000",
    "NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE": "1000000",
    "NOVEL_INGEST_BYTES_PER_MINUTE": str(1 << 40),
    "NOVEL_QUEUE_MAX_ITEMS": str(1 << 40),
    "NOVEL_QUEUE_MAX_BYTES": str(1 << 50),
    "NOVEL_INGEST_ALLOWED_ADDRESSES": "",
    # The batches are made for the usual limits.
    "NOVEL_INGEST_MAX_CHAPTERS_BYTES": str(batches.LARGEST_BYTES),
    "NOVEL_MAX_BODY_BYTES": str(HttpSettings().max_body_bytes),
}


@dataclass(frozen=True, slots=True)
class Door:
    """The running service, and the key that opens it."""

    child: Child
    port: int
    key_id: str
    secret: str
    environ: Mapping[str, str]
    """What it was started with."""

    @property
    def pid(self) -> int:
        return self.child.pid

    @contextlib.contextmanager
    def client(self) -> Iterator["Client"]:
        """A connection to it that is kept alive while the block runs."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_SECONDS)
        try:
            yield Client(self, connection)
        finally:
            connection.close()


class Client:
    """One connection. It does as little as a client can: bodies come made, compressed and hashed."""

    def __init__(self, door: Door, connection: http.client.HTTPConnection) -> None:
        self._door = door
        self._connection = connection

    def push(self, batch: Batch) -> int:
        """Push a batch as a new one; returns how many items were queued, which are all of them."""
        status, content = self._ask("POST", routes.CHAPTERS, batch.body, self._headers(batch))
        if status != 202:
            raise Problem(f"the ingest service answered a batch of the benchmark with {status}: {content.decode()}")
        return batch.items

    def get(self, path: str) -> bytes:
        status, content = self._ask("GET", path, None, {})
        if status != 200:
            raise Problem(f"the ingest service answered {path} with {status}: {content.decode()}")
        return content

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Problem(f"the ingest service gave no answer ({error!r}). Its log is {OUTPUT}.") from error

    def _headers(self, batch: Batch) -> dict[str, str]:
        timestamp, nonce = str(int(time.time())), uuid.uuid4().hex
        signed = signature.sign(
            self._door.secret,
            method="POST",
            path=routes.CHAPTERS,
            timestamp=timestamp,
            nonce=nonce,
            body_sha256=batch.sha256,
        )
        return {
            "Content-Type": "application/json",
            "Content-Encoding": batch.encoding,
            "X-Novel-Key-Id": self._door.key_id,
            "X-Novel-Timestamp": timestamp,
            "X-Novel-Nonce": nonce,
            "X-Novel-Signature": signed,
            "X-Novel-Request-Id": str(uuid.uuid4()),
            "Idempotency-Key": str(uuid.uuid4()),
        }


@contextlib.contextmanager
def opened(bench: Bench, *, processes: int = 1) -> Iterator[Door]:
    """Serve while the block runs. The queue is taken before, with `queue_tables.owned`."""
    master_key = secrets.token_urlsafe(32)
    with connect(bench.settings.database) as conn:
        key_id, secret = api_keys.create(
            conn,
            name=KEY_NAME,
            permissions=("ingest:chapters",),
            master_key=master_key,
            operator="bench",
            sources=(batches.SOURCE,),
        )
    with _redis(bench) as redis_url:
        environ = _environ(bench, redis_url, master_key)
        with _served(bench, environ, processes) as (child, port):
            yield Door(child, port, key_id, secret, environ)


@contextlib.contextmanager
def _served(bench: Bench, environ: Mapping[str, str], processes: int) -> Iterator[tuple[Child, int]]:
    OUTPUT.unlink(missing_ok=True)
    # The socket is ours, so nobody can take its port in between.
    with server.listen(HOST, 0) as listener:
        command = serve.child_command("ingest", listener, http=bench.settings.http, name="the ingest service")
        argv = (*command.argv, "--processes", str(processes))
        child = children.start(replace(command, argv=argv, environ=environ, output=OUTPUT))
        port: int = listener.getsockname()[1]
        try:
            children.wait_until(lambda: server.answers(listener, "/healthz"), child)
        except BaseException:
            child.stop()
            raise
    try:
        yield child, port
    finally:
        child.stop()


@contextlib.contextmanager
def _redis(bench: Bench) -> Iterator[str]:
    """The Redis that is set, else one of our own: a service runs with one."""
    if bench.settings.redis.address is not None:
        yield bench.settings.redis.address.url
        return
    private = PrivateRedis(Path(place.DIRECTORY / "redis").absolute())
    private.prepare()
    child = children.start(private.command())
    try:
        private.wait(child)
        yield private.url
    finally:
        child.stop()


def _environ(bench: Bench, redis_url: str, master_key: str) -> dict[str, str]:
    """The environment we have, but for what must be so here."""
    ours = _VARIABLES | {
        "NOVEL_DATABASE_URL": require_address(bench.settings.database).url,
        "NOVEL_TABLE_PREFIX": bench.settings.database.table_prefix,
        "NOVEL_REDIS_URL": redis_url,
        "NOVEL_MASTER_KEY": master_key,
    }
    replaced = {*ours, *(f"{name}_FILE" for name in ours)}
    return {name: value for name, value in os.environ.items() if name not in replaced} | ours
