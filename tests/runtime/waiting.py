"""Waiting on conditions, and a look at processes: what tests of processes have in common."""

import os
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_SECONDS = 30.0


def wait_for(condition: Callable[[], object], *, what: str = "") -> None:
    """Wait until the condition holds. The limit only ends a test that would hang."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited too long{what and ' for '}{what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def number_in(file: Path) -> int:
    """The number that another process writes to a file, as soon as it is there."""
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), what=file.name)
    return int(file.read_text())


def session_of(pid: int) -> int:
    return os.getsid(pid)
