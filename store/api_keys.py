"""API keys of crawlers.

A key's secret is derived from the master key, shown once and stored nowhere. Its argon2id hash is stored, so that a
process with another master key notices at once. The version is part of the key id: `nk_4f1c09aa.1`.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import argon2

from runtime.problems import Problem
from schema import journal
from schema.connection import Connection

PERMISSIONS = ("ingest:stories", "ingest:chapters", "ingest:stats")

_INSERT = """
    INSERT INTO wp_novel_api_keys (key_name, key_id, secret_hash, permissions, is_active, created_at)
    VALUES (%s, %s, %s, %s, 1, UTC_TIMESTAMP())
"""
# Few rows: KEY by_active.
_ACTIVE_BY_NAME = """
    SELECT key_id, secret_hash, permissions FROM wp_novel_api_keys
    WHERE is_active = 1 AND key_name = %s ORDER BY id DESC LIMIT 20
"""


@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: str
    secret_hash: str
    permissions: tuple[str, ...]


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


def create(
    conn: Connection, *, name: str, permissions: Sequence[str], master_key: str, operator: str
) -> tuple[str, str]:
    """Make a key; returns its id and its secret, which is shown this once."""
    key_id = f"nk_{secrets.token_hex(8)}.1"
    secret = derive_secret(master_key, key_id)
    with conn.transaction():
        conn.execute(_INSERT, (name, key_id, argon2.PasswordHasher().hash(secret), ",".join(permissions)))
        journal.append(
            conn,
            "api_key.created",
            f"API key {key_id} ({name}) was created by {operator}.",
            reference=key_id,
            context={"operator": operator, "permissions": list(permissions)},
        )
    return key_id, secret


def active(conn: Connection, *, name: str) -> list[ApiKey]:
    """The newest keys of this name that are in force."""
    rows = conn.fetch_all(_ACTIVE_BY_NAME, (name,))
    return [ApiKey(key_id, secret_hash, tuple(permissions.split(","))) for key_id, secret_hash, permissions in rows]
