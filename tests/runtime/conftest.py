"""Logs captured as a process would write them."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from runtime import logs

_LIBRARIES = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


class LogLines:
    """Everything logged so far, as JSON lines."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.split("\n") if line]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.all() if line["event"] == event]

    def one(self, event: str) -> dict[str, Any]:
        (line,) = self.of(event)
        return line


@pytest.fixture
def unconfigured_logs() -> Iterator[None]:
    """Whatever the test does to logging is undone."""
    root = logging.getLogger()
    root_before = root.handlers, root.level
    libraries = [logging.getLogger(name) for name in _LIBRARIES]
    libraries_before = [(library.handlers, library.propagate, library.level) for library in libraries]
    structlog_before = structlog.get_config()
    yield
    root.handlers, root.level = root_before
    for library, before in zip(libraries, libraries_before, strict=True):
        library.handlers, library.propagate, library.level = before
    logging.getLogger("any").manager._clear_cache()  # type: ignore[attr-defined]
    structlog.configure(**structlog_before)
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def log_lines(unconfigured_logs: None) -> LogLines:
    """Logs of the test, down to debug, as JSON."""
    stream = io.StringIO()
    logs.configure(format="json", level="debug", stream=stream)
    return LogLines(stream)
