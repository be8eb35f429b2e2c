"""Nonces of signed requests, each good once in ten minutes.

The table has them all, written in the transaction that accepts the request, so that none is accepted twice even when
Redis has just lost its memory. Redis is asked first, and saves the database from a flood of replays.
"""

import hashlib

from asyncmy.errors import MySQLError

from store import errors
from store.connection import Connection
from store.redis_link import RedisLink

# A signature is good for ten minutes: five before its time and five after.
TTL_SECONDS = 600
# In the table a minute more, because the database's clock may be ahead of ours.
KEPT_SECONDS = TTL_SECONDS + 60

_INSERT = """
    INSERT INTO wp_novel_nonce_replay (nonce_hash, key_id, expires_at)
    VALUES (%s, %s, UTC_TIMESTAMP() + INTERVAL %s SECOND)
"""
# PRIMARY: one whose time has passed gives way.
_DELETE_EXPIRED = "DELETE FROM wp_novel_nonce_replay WHERE nonce_hash = %s AND expires_at < UTC_TIMESTAMP()"
_IS_TAKEN = "SELECT 1 FROM wp_novel_nonce_replay WHERE nonce_hash = %s AND expires_at >= UTC_TIMESTAMP()"


class NonceUsed(Exception):
    """This nonce was accepted before."""


def fingerprint(key_id: str, nonce: str) -> bytes:
    return hashlib.sha256(f"{key_id}\0{nonce}".encode()).digest()


async def is_remembered(redis: RedisLink, nonce: bytes) -> bool:
    """Whether Redis knows that a nonce was accepted. That it does not means nothing."""
    return await redis.run("nonce", lambda client: client.exists(_redis_key(nonce)), fallback=_zero) > 0


async def is_taken(conn: Connection, nonce: bytes) -> bool:
    """Whether a nonce was accepted before. `take` decides; this only saves the work until then."""
    return await conn.fetch_one(_IS_TAKEN, (nonce,)) is not None


async def take(conn: Connection, nonce: bytes, key_id: str) -> None:
    """Take a nonce, or raise NonceUsed. Two at once: one waits for the other's COMMIT."""
    try:
        await conn.execute(_INSERT, (nonce, key_id, KEPT_SECONDS))
    except MySQLError as error:
        if not errors.is_duplicate(error):
            raise
        if not await conn.execute(_DELETE_EXPIRED, (nonce,)):
            raise NonceUsed from None
        await conn.execute(_INSERT, (nonce, key_id, KEPT_SECONDS))


async def remember(redis: RedisLink, nonce: bytes) -> None:
    """Tell Redis of a nonce that was taken."""
    await redis.run("nonce", lambda client: client.set(_redis_key(nonce), 1, ex=TTL_SECONDS), fallback=_nothing)


def _redis_key(nonce: bytes) -> str:
    return f"novel:nonce:{nonce.hex()}"


async def _zero() -> int:
    return 0


async def _nothing() -> None:
    return None
