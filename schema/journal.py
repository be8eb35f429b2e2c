"""Rows of `wp_novel_sync_logs`, the log that operators and the admin page read."""

from collections.abc import Mapping
from typing import Any

import orjson

from schema.connection import Connection

MAX_CONTEXT_BYTES = 16_000
MAX_MESSAGE_CHARACTERS = 2000

APPEND = """
    INSERT INTO wp_novel_sync_logs (event_type, source, reference_id, level, message, context_json, created_at)
    VALUES (%s, %s, %s, %s, %s, %s, UTC_TIMESTAMP())
"""


def entry(
    event_type: str,
    message: str,
    *,
    level: str = "info",
    source: str | None = None,
    reference: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> tuple[Any, ...]:
    """The values of a row, within their bounds."""
    encoded = orjson.dumps(context, default=str).decode() if context else None
    if encoded and len(encoded.encode()) > MAX_CONTEXT_BYTES:
        encoded = orjson.dumps({"truncated_bytes": len(encoded.encode())}).decode()
    return event_type, source, reference, level, message[:MAX_MESSAGE_CHARACTERS], encoded


def append(conn: Connection, event_type: str, message: str, **more: Any) -> None:
    conn.execute(APPEND, entry(event_type, message, **more))
