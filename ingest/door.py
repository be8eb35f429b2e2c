"""The door: who may come in. Each check is cheaper, or less trusting, than the one after it.

Declared size (by the middleware) → TLS → address and its rate → headers → time → room in the queue → key and
signature over the bytes as sent → permission → expanding → source → idempotency → nonce → quotas → schema → accept.
Nothing is written before the last: see `service` and `accepting`.

An unknown key and a wrong signature take the same way, so that neither time nor answer tells which it was: every key id
has a secret under the master key, also one that was never given out. That a key is revoked, expired or locked is told
only to whoever signs with its secret.
"""

import asyncio
import ipaddress
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import Counter
from starlette.requests import Request

from ingest import signature
from ingest.errors import (
    AddressNotAllowed,
    HttpsRequired,
    InvalidSignature,
    KeyInactive,
    PermissionDenied,
    RateLimited,
)
from ingest.hash_checks import HashChecks
from ingest.headers import Signed
from ingest.reading import Body
from runtime import logs
from runtime.settings import IngestSettings
from store import api_keys, errors, key_ring, rate_windows
from store.connection import Connection
from store.key_ring import Key
from store.local_windows import LocalWindows
from store.pool import Pool
from store.rate_windows import Limit
from store.redis_link import RedisLink

log = logs.get(__name__)

FAILURE_WINDOW_SECONDS = 600
TOUCH_SECONDS = 60
_FORWARDED = (
    *("forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-proto"),
    *("x-forwarded-host", "x-forwarded-port", "x-forwarded-server"),
)

LOCKED = Counter("novel_ingest_keys_locked_total", "Keys locked after wrong signatures")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who has come in."""

    key: Key
    signed: Signed


class Door:
    def __init__(self, settings: IngestSettings, *, pool: Pool, redis: RedisLink, master_key: str) -> None:
        self._settings = settings
        self._pool = pool
        self._redis = redis
        self._master_key = master_key
        self._allowed = [ipaddress.ip_network(network) for network in settings.allowed_addresses]
        self._strangers = LocalWindows()
        """What is counted while Redis is away and must cost the database no write."""
        self._hashes = HashChecks(master_key)
        self._touched: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def meet(self, request: Request) -> None:
        """What can be refused for where a request comes from."""
        self._require_tls(request)
        address = self._require_allowed_address(request)
        await self._limit_address(address)

    async def verify(self, request: Request, signed: Signed, body: Body, *, permission: str | None) -> Visitor:
        """Who signed this, and may they?"""
        async with self._pool.reading() as conn:
            key = await key_ring.find(conn, signed.key_id)
        expected = signature.sign(
            api_keys.derive_secret(self._master_key, signed.key_id),
            method=request.method,
            path=request.scope["path"],
            timestamp=signed.timestamp,
            nonce=signed.nonce,
            body_sha256=body.sha256,
        )
        if not signature.matches(signed.signature, expected) or key is None:
            await self._note_failure(signed.key_id, key)
            raise InvalidSignature
        if not key.is_active:
            raise KeyInactive
        if key.locked_seconds:
            raise KeyInactive(
                f"This key is locked for {key.locked_seconds} s after too many wrong signatures."
                " The operator can unlock it with: novel keys unlock.",
                headers={"Retry-After": str(key.locked_seconds)},
            )
        if not await self._hashes.agrees(key):  # somebody has changed the row
            raise InvalidSignature
        if permission is not None and permission not in key.permissions:
            raise PermissionDenied(f"This key does not have the permission {permission}.")
        return Visitor(key, signed)

    async def limit_key(self, scope: str, limit: Limit, *, size: int = 0) -> None:
        """Count a request against a key's quota."""
        wait_seconds = await rate_windows.take(
            self._redis,
            scope,
            limit,
            size=size,
            fallback=rate_windows.in_database(self._pool, scope, limit, size=size),
        )
        if wait_seconds:
            raise RateLimited(
                f"This key has used its quota of {limit.requests} requests and {limit.bytes} bytes in"
                f" {limit.window_seconds} s. Try again in {wait_seconds} s.",
                retry_after_seconds=wait_seconds,
            )

    def note_use(self, key: Key) -> None:
        """When a key was last used, to the minute. The batch is accepted: nobody waits for this."""
        now = time.monotonic()
        if now - self._touched.get(key.key_id, -math.inf) >= TOUCH_SECONDS:
            self._touched[key.key_id] = now
            task = asyncio.create_task(self._touch(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what was put off."""
        await asyncio.gather(*self._tasks)

    async def _touch(self, key: Key) -> None:
        try:
            async with self._pool.reading() as conn:
                await key_ring.touch(conn, key.key_id, every_seconds=TOUCH_SECONDS)
        except (errors.StoreError, errors.ServerRefused) as error:
            log.warning("api_key.use_not_noted", key_id=key.key_id, error=repr(error))

    def _require_tls(self, request: Request) -> None:
        """Plain HTTP may come from this machine itself, but not through a proxy that took it from elsewhere."""
        if not self._settings.require_tls or request.url.scheme == "https":
            return
        # Nobody but an old proxy speaks HTTP/1.0.
        forwarded = request.scope["http_version"] == "1.0" or any(name in request.headers for name in _FORWARDED)
        if forwarded or not _is_loopback(address_of(request)):
            raise HttpsRequired

    def _require_allowed_address(self, request: Request) -> str:
        address = address_of(request)
        if self._allowed and not _is_within(address, self._allowed):
            raise AddressNotAllowed
        return address

    async def _limit_address(self, address: str) -> None:
        limit = Limit(requests=self._settings.address_requests_per_minute)
        network = _network(address)

        async def in_process() -> int:
            return self._strangers.take(f"address:{network}", limit, now=time.time())

        wait_seconds = await rate_windows.take(self._redis, f"address:{network}", limit, fallback=in_process)
        if wait_seconds:
            raise RateLimited(
                f"Too many requests from this address. Try again in {wait_seconds} s.",
                retry_after_seconds=wait_seconds,
            )

    async def _note_failure(self, key_id: str, key: Key | None) -> None:
        """Count a wrong signature; lock the key when there are too many. A key that is not there counts alike."""
        if key is not None:
            self._hashes.suspect(key)
        limit = Limit(requests=self._settings.lock_failures - 1, window_seconds=FAILURE_WINDOW_SECONDS)
        scope = f"failures:{key_id}:{key.last_lock if key else 0}"  # begins anew after a lock

        async def in_process() -> int:
            return self._strangers.take(scope, limit, now=time.time())

        fallback = in_process if key is None else rate_windows.in_database(self._pool, scope, limit)
        wait_seconds = await rate_windows.take(self._redis, scope, limit, fallback=fallback)
        if not wait_seconds or (key is not None and not await self._hashes.agrees(key)):
            return  # if our master key is wrong, the fault is ours: no key is locked for it

        async def lock(conn: Connection) -> bool:
            return await key_ring.lock(
                conn, key_id, seconds=self._settings.lock_seconds, failures=self._settings.lock_failures
            )

        if await self._pool.transaction(lock):
            LOCKED.inc()
            log.warning("api_key.locked", key_id=key_id, seconds=self._settings.lock_seconds)


def address_of(request: Request) -> str:
    return request.client.host[:64] if request.client else ""


def _network(address: str) -> str:
    """Whom an address belongs to: of IPv6, everybody has a /64."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else address


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _is_within(address: str, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)
