"""API keys of crawlers, as operators make, list, rotate and end them. `key_ring` is how the door reads them.

A key's secret is derived from the master key, shown once and stored nowhere. Its argon2id hash is stored, so that a
process with another master key notices at once. The version is part of the key id: `nk_4f1c09aa.1` is rotated into
`nk_4f1c09aa.2`, and both are valid until the first one ends. A key without terms is one from before there were any:
it may push any source, and has no end.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import argon2
import msgspec
import orjson

from runtime.problems import Problem
from schema import journal
from schema.connection import Connection, Row

PERMISSIONS = ("ingest:stories", "ingest:chapters", "ingest:stats")

_NEW_KEY = "Make a new one with: novel keys create"
_VERSIONED = re.compile(r"(.+)\.([1-9][0-9]{0,8})")


class State(StrEnum):
    ACTIVE = "active"
    LOCKED = "locked"
    """For a while, by the door, after too many wrong signatures."""
    EXPIRED = "expired"
    REVOKED = "revoked"

    @property
    def is_over(self) -> bool:
        return self in (State.EXPIRED, State.REVOKED)


@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: str
    secret_hash: str
    permissions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyRecord(ApiKey):
    """A key and its terms. All times are UTC."""

    name: str
    sources: tuple[str, ...] | None
    """None: any."""
    state: State
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    locked_until: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Rotation:
    key_id: str
    secret: str = field(repr=False)
    replaced: KeyRecord


# -- decisions ------------------------------------------------------------------------------------------


def derive_secret(master_key: str, key_id: str) -> str:
    """The secret that belongs to a key id, under this master key."""
    version = key_id.rpartition(".")[2]
    message = f"novel-api-key{key_id}{version}".encode()
    digest = hmac.new(master_key.encode(), message, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def check_secret(key: ApiKey, master_key: str) -> str:
    """The key's secret, or a Problem when it was made under another master key."""
    secret = derive_secret(master_key, key.key_id)
    try:
        argon2.PasswordHasher().verify(key.secret_hash, secret)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        raise Problem(
            f"API key {key.key_id} was made under another master key. Set NOVEL_MASTER_KEY to the one it was made with."
        ) from None
    return secret


def _parts(key_id: str) -> tuple[str, int]:
    """What all versions of a key have in common, and this one's version; 0 when the id has none."""
    found = _VERSIONED.fullmatch(key_id)
    return (found[1], int(found[2])) if found else (key_id, 0)


def state_of(*, is_active: bool, expires_at: datetime | None, locked_until: datetime | None, now: datetime) -> State:
    if not is_active:
        return State.REVOKED
    if expires_at is not None and expires_at <= now:
        return State.EXPIRED
    if locked_until is not None and locked_until > now:
        return State.LOCKED
    return State.ACTIVE


# -- reading --------------------------------------------------------------------------------------------

# Few rows: KEY by_active, and PRIMARY of the terms.
_ACTIVE_BY_NAME = """
    SELECT k.key_id, k.secret_hash, k.permissions
    FROM wp_novel_api_keys k LEFT JOIN wp_novel_api_key_terms t ON t.key_id = k.key_id
    WHERE k.is_active = 1 AND k.key_name = %s AND (t.expires_at IS NULL OR t.expires_at > UTC_TIMESTAMP())
    ORDER BY k.id DESC LIMIT 20
"""


def active(conn: Connection, *, name: str) -> list[ApiKey]:
    """The newest keys of this name that are in force."""
    rows = conn.fetch_all(_ACTIVE_BY_NAME, (name,))
    return [ApiKey(key_id, secret_hash, tuple(permissions.split(","))) for key_id, secret_hash, permissions in rows]


# Every key there is: as many as crawlers, and those they had before.
_EVERY = """
    SELECT k.key_id, k.secret_hash, k.permissions, k.key_name, k.is_active, k.created_at, k.last_used_at,
        t.sources, t.expires_at, t.locked_until, t.revoked_at, UTC_TIMESTAMP()
    FROM wp_novel_api_keys k LEFT JOIN wp_novel_api_key_terms t ON t.key_id = k.key_id
    ORDER BY k.id
"""


def every(conn: Connection) -> list[KeyRecord]:
    """All keys, the oldest first, also those that are over."""
    return [_record(row) for row in conn.fetch_all(_EVERY)]


# UNIQUE key_id, by force: a scan of the table would wait for keys that are none of ours.
_TAKE = """
    SELECT k.key_id, k.secret_hash, k.permissions, k.key_name, k.is_active, k.created_at, k.last_used_at,
        t.sources, t.expires_at, t.locked_until, t.revoked_at, UTC_TIMESTAMP()
    FROM wp_novel_api_keys k FORCE INDEX (key_id) LEFT JOIN wp_novel_api_key_terms t ON t.key_id = k.key_id
    WHERE k.key_id BETWEEN %s AND %s
    FOR UPDATE
"""


def _take(conn: Connection, key_id: str) -> KeyRecord:
    """Read a key, and keep others from changing it until the transaction ends."""
    row = conn.fetch_one(_TAKE, (key_id, key_id))
    if row is None:
        raise Problem(f"there is no API key {key_id}. See which there are with: novel keys list --all")
    return _record(row)


def _take_family(conn: Connection, base: str) -> dict[int, KeyRecord]:
    """Every version of a key. Whoever rotates one of them waits here for others who do: all take the lowest first."""
    # "/" comes after "." and key ids compare byte by byte: between the two lies all that starts with the base and ".".
    records = [_record(row) for row in conn.fetch_all(_TAKE, (f"{base}.", f"{base}/"))]
    parts = [(*_parts(record.key_id), record) for record in records]
    return {version: record for start, version, record in parts if start == base}


def _record(row: Row) -> KeyRecord:
    key_id, secret_hash, permissions, name, is_active, created_at, last_used_at, sources, *terms, now = row
    expires_at, locked_until, revoked_at = terms
    return KeyRecord(
        key_id=key_id,
        secret_hash=secret_hash,
        permissions=tuple(permissions.split(",")),
        name=name,
        sources=None if sources is None else sources_of(sources),
        state=state_of(is_active=is_active == 1, expires_at=expires_at, locked_until=locked_until, now=now),
        created_at=created_at,
        last_used_at=last_used_at,
        expires_at=expires_at,
        locked_until=locked_until,
        revoked_at=revoked_at,
    )


def sources_of(text: str) -> tuple[str, ...]:
    """None at all, where somebody wrote by hand what cannot be read: such a key can still be listed and revoked."""
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError:
        return ()


# -- writing: each in one transaction, with who did it in the journal -----------------------------------


def create(
    conn: Connection,
    *,
    name: str,
    permissions: Sequence[str],
    master_key: str,
    operator: str,
    sources: Sequence[str] | None = None,
) -> tuple[str, str]:
    """Make a key; returns its id and its secret, which is shown this once. No sources: any source."""
    key_id = f"nk_{secrets.token_hex(8)}.1"
    with conn.transaction():
        secret = _issue(
            conn,
            key_id,
            name=name,
            permissions=permissions,
            sources=sources or None,
            master_key=master_key,
            operator=operator,
        )
    return key_id, secret


_INSERT = """
    INSERT INTO wp_novel_api_keys (key_name, key_id, secret_hash, permissions, is_active, created_at)
    VALUES (%s, %s, %s, %s, 1, UTC_TIMESTAMP())
"""
_INSERT_TERMS = "INSERT INTO wp_novel_api_key_terms (key_id, sources) VALUES (%s, %s)"


def _issue(
    conn: Connection,
    key_id: str,
    *,
    name: str,
    permissions: Sequence[str],
    sources: Sequence[str] | None,
    master_key: str,
    operator: str,
) -> str:
    secret = derive_secret(master_key, key_id)
    conn.execute(_INSERT, (name, key_id, argon2.PasswordHasher().hash(secret), ",".join(permissions)))
    conn.execute(_INSERT_TERMS, (key_id, None if sources is None else orjson.dumps(list(sources)).decode()))
    context: dict[str, object] = {"operator": operator, "permissions": list(permissions)}
    if sources is not None:
        context["sources"] = list(sources)
    journal.append(
        conn,
        "api_key.created",
        f"API key {key_id} ({name}) was created by {operator}.",
        reference=key_id,
        context=context,
    )
    return secret


# PRIMARY.
_EXPIRE = """
    INSERT INTO wp_novel_api_key_terms (key_id, expires_at) VALUES (%s, UTC_TIMESTAMP() + INTERVAL %s HOUR)
    ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at)
"""


def rotate(conn: Connection, key_id: str, *, overlap_hours: int, master_key: str, operator: str) -> Rotation:
    """Issue the next version of a key, for the same purposes; the old one goes on for the overlap."""
    with conn.transaction():
        base, version = _parts(key_id)
        family = _take_family(conn, base)
        old = _take(conn, key_id)
        if not version:
            raise Problem(f"API key {key_id} has no version in its id and cannot be rotated. {_NEW_KEY}")
        _require_newest(old, version, family)
        check_secret(old, master_key)
        new_id = f"{base}.{max(family) + 1}"
        secret = _issue(
            conn,
            new_id,
            name=old.name,
            permissions=old.permissions,
            sources=old.sources,
            master_key=master_key,
            operator=operator,
        )
        conn.execute(_EXPIRE, (key_id, overlap_hours))
        end = f"in {overlap_hours} hours" if overlap_hours else "at once"
        journal.append(
            conn,
            "api_key.rotated",
            f"API key {key_id} ({old.name}) was rotated into {new_id} by {operator}; it ends {end}.",
            reference=key_id,
            context={"operator": operator, "new_key_id": new_id, "overlap_hours": overlap_hours},
        )
        return Rotation(key_id=new_id, secret=secret, replaced=_take(conn, key_id))


def _require_newest(key: KeyRecord, version: int, family: dict[int, KeyRecord]) -> None:
    """A key is rotated once: a second time, by mistake or by somebody else, would leave a secret that nobody misses."""
    newer = [number for number, other in family.items() if number > version and not other.state.is_over]
    successor = family[max(newer)].key_id if newer else None
    if key.state.is_over:
        instead = f"Rotate {successor}, which took its place, or make" if successor else "Make"
        raise Problem(
            f"API key {key.key_id} is {key.state} and cannot be rotated. {instead} a new one with: novel keys create"
        )
    if successor:
        raise Problem(f"API key {key.key_id} was rotated already: {successor} took its place. Rotate that one.")


# UNIQUE key_id.
_DEACTIVATE = "UPDATE wp_novel_api_keys SET is_active = 0 WHERE key_id = %s"
# PRIMARY.
_NOTE_REVOCATION = """
    INSERT INTO wp_novel_api_key_terms (key_id, revoked_at) VALUES (%s, UTC_TIMESTAMP())
    ON DUPLICATE KEY UPDATE revoked_at = VALUES(revoked_at)
"""


def revoke(conn: Connection, key_id: str, *, operator: str) -> KeyRecord:
    """End a key at once; returns it as it was before."""
    with conn.transaction():
        key = _take(conn, key_id)
        if key.state is State.REVOKED:
            return key
        conn.execute(_DEACTIVATE, (key_id,))
        conn.execute(_NOTE_REVOCATION, (key_id,))
        journal.append(
            conn,
            "api_key.revoked",
            f"API key {key_id} ({key.name}) was revoked by {operator}.",
            reference=key_id,
            context={"operator": operator},
        )
    return key


# PRIMARY.
# The time stays, so that failures before it count no more.
_UNLOCK = "UPDATE wp_novel_api_key_terms SET locked_until = UTC_TIMESTAMP() WHERE key_id = %s"


def unlock(conn: Connection, key_id: str, *, operator: str) -> KeyRecord:
    """Let a locked key in again; returns it as it was before."""
    with conn.transaction():
        key = _take(conn, key_id)
        if key.state.is_over:
            raise Problem(f"API key {key_id} is {key.state}: unlocking cannot bring it back. {_NEW_KEY}")
        if key.state is not State.LOCKED:
            return key
        conn.execute(_UNLOCK, (key_id,))
        journal.append(
            conn,
            "api_key.unlocked",
            f"API key {key_id} ({key.name}) was unlocked by {operator}.",
            reference=key_id,
            context={"operator": operator, "locked_until": f"{key.locked_until:%Y-%m-%dT%H:%M:%SZ}"},
        )
    return key
