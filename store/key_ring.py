"""API keys as the door sees them: who may push what, right now. `api_keys` is how an operator makes them."""

from dataclasses import dataclass

from schema import journal
from store import api_keys
from store.connection import Connection

# UNIQUE key_id and PRIMARY: two points.
_FIND = """
    SELECT k.key_id, k.secret_hash, k.permissions, t.sources,
        k.is_active = 1 AND (t.expires_at IS NULL OR t.expires_at > UTC_TIMESTAMP()),
        COALESCE(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), t.locked_until), 0), COALESCE(UNIX_TIMESTAMP(t.locked_until), 0)
    FROM wp_novel_api_keys k LEFT JOIN wp_novel_api_key_terms t ON t.key_id = k.key_id
    WHERE k.key_id = %s
"""
# UNIQUE key_id.
_TOUCH = """
    UPDATE wp_novel_api_keys SET last_used_at = UTC_TIMESTAMP()
    WHERE key_id = %s AND (last_used_at IS NULL OR last_used_at < UTC_TIMESTAMP() - INTERVAL %s SECOND)
"""
# Of a key that does not exist nothing is kept.
_LOCK = """
    INSERT INTO wp_novel_api_key_terms (key_id, locked_until)
    SELECT key_id, UTC_TIMESTAMP() + INTERVAL %s SECOND FROM wp_novel_api_keys WHERE key_id = %s
    ON DUPLICATE KEY UPDATE locked_until = IF(locked_until > UTC_TIMESTAMP(), locked_until, VALUES(locked_until))
"""


@dataclass(frozen=True, slots=True)
class Key:
    key_id: str
    secret_hash: str
    permissions: frozenset[str]
    sources: frozenset[str] | None
    """None: any."""
    is_active: bool
    locked_seconds: int
    last_lock: int
    """Tells the failures since the last lock from those before it."""

    @property
    def family(self) -> str:
        """What a key and those it is rotated into have in common."""
        base, _, version = self.key_id.rpartition(".")
        return base if base and version.isdigit() else self.key_id

    def may_use(self, source: str) -> bool:
        return self.sources is None or source in self.sources


async def find(conn: Connection, key_id: str) -> Key | None:
    row = await conn.fetch_one(_FIND, (key_id,))
    if row is None:
        return None
    found, secret_hash, permissions, sources, is_active, locked_seconds, last_lock = row
    return Key(
        found,
        secret_hash,
        frozenset(permissions.split(",")),
        None if sources is None else frozenset(api_keys.sources_of(sources)),
        bool(is_active),
        max(0, int(locked_seconds)),
        int(last_lock),
    )


async def touch(conn: Connection, key_id: str, *, every_seconds: int) -> None:
    """Note that a key is in use, no more often than that."""
    await conn.execute(_TOUCH, (key_id, every_seconds))


async def lock(conn: Connection, key_id: str, *, seconds: int, failures: int) -> bool:
    """Lock a key for a while, and tell the operators; False when it is locked already, or not there."""
    if not await conn.execute(_LOCK, (seconds, key_id)):
        return False
    entry = journal.entry(
        "api_key.locked",
        f"API key {key_id} was locked for {seconds} s after {failures} wrong signatures.",
        level="warning",
        reference=key_id,
        context={"seconds": seconds, "failures": failures},
    )
    await conn.execute(journal.APPEND, entry)
    return True
