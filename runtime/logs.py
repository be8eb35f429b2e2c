"""Structured logs: events with fields, as JSON lines or for human eyes.

`log = logs.get(__name__)`, then `log.info("job.completed", job_id=7, seconds=0.2)`. Fields bound to the context
(`request_id`, `job_id`) ride along on every line. Names that smell of secrets are redacted, long values cut, and
control characters escaped, whatever the caller hands in.
"""

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import orjson
import structlog
from structlog.contextvars import bound_contextvars

__all__ = ["bound", "configure", "get"]

MAX_VALUE_CHARACTERS = 2000
_SECRET_WORDS = (
    "secret",
    "password",
    "passwd",
    "signature",
    "authorization",
    "cookie",
    "token",
    "master_key",
    "content_raw",
    "body",
)
_NOT_SECRET = frozenset({"body_bytes", "body_seconds", "token_type"})

bound = bound_contextvars

Event = MutableMapping[str, Any]


def get(name: str) -> Any:
    return structlog.stdlib.get_logger(name)


def configure(*, format: str, level: str, stream: TextIO | None = None) -> None:
    """Send every log line of this process, ours and the libraries', to one place in one form."""
    stream = stream or sys.stderr
    human = format == "human" or (format == "auto" and stream.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        sanitise,
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0)
        if human
        else structlog.processors.JSONRenderer(serializer=_to_json)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        library = logging.getLogger(name)
        library.handlers, library.propagate = [], True
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def sanitise(logger: Any, method: str, event: Event) -> Event:
    """Redact what smells of secrets, cut what is long, escape what could forge a line."""
    for name, value in event.items():
        if name != "exception":  # its line breaks are for human eyes; JSON escapes them
            event[name] = _clean(name, value)
    return event


def _clean(name: Any, value: Any) -> Any:
    if isinstance(name, str) and name not in _NOT_SECRET and any(word in name.lower() for word in _SECRET_WORDS):
        return "[redacted]"
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    if isinstance(value, Mapping):
        return {inner: _clean(inner, item) for inner, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean("", item) for item in value]
    return value


def _plain(value: str) -> str:
    if len(value) > MAX_VALUE_CHARACTERS:
        value = f"{value[:MAX_VALUE_CHARACTERS]}… ({len(value)} characters)"
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _to_json(event: Event, **_: Any) -> str:
    try:
        return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # half a character, a huge number, a key of no simple type: slower, but no line is lost
        plain = {name: value if isinstance(value, str | int) else repr(value) for name, value in event.items()}
        return json.dumps(plain)
