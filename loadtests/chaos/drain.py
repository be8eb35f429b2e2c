"""Waits until the queue is empty: nothing waits or is held, no story is to be counted, and every request has ended."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadtests.chaos.stage import Stage
from runtime.problems import Problem
from schema.connection import Connection

COMMAND_SECONDS = 120.0

# Scans, of tables that are narrow or that end small.
_STANDING = """
    SELECT (SELECT COALESCE(SUM(processed_items + failed_items), 0) FROM wp_novel_ingest_requests),
        (SELECT COUNT(*) FROM wp_novel_ingest_requests WHERE status < 2),
        (SELECT COALESCE(SUM(items), 0) FROM wp_novel_ingest_ready),
        (SELECT COALESCE(SUM(items), 0) FROM wp_novel_ingest_leases),
        (SELECT COALESCE(SUM(touch_count), 0) FROM wp_novel_story_recount_queue)
"""


@dataclass(frozen=True, slots=True)
class Standing:
    ended: int
    """Items."""
    open_requests: int
    waiting: int
    held: int
    touches: int
    """Of stories that are to be counted."""

    @property
    def is_drained(self) -> bool:
        return not (self.open_requests or self.waiting or self.held or self.touches)


def standing(conn: Connection) -> Standing:
    row = conn.fetch_one(_STANDING)
    assert row is not None
    return Standing(*map(int, row))


def wait(look: Callable[[], Standing], *, tend: Callable[[], None], patience_seconds: float) -> Standing:
    """Wait until it is drained, or nothing has changed for so long."""
    last, changed_at = look(), time.monotonic()
    while not last.is_drained:
        tend()
        time.sleep(0.1)
        now = look()
        if now != last:
            last, changed_at = now, time.monotonic()
        elif time.monotonic() - changed_at > patience_seconds:
            break
    return last


def replay_crashed(stage: Stage) -> int:
    """Queue again what has given up because workers were killed over it; returns how many items."""
    said = json.loads(_novel(stage, "replay-dead-letter", "--error-code", "worker_crashed", "--json"))
    return int(said["queued"])


def status(stage: Stage) -> dict[str, Any]:
    """What an operator is told."""
    said: dict[str, Any] = json.loads(_novel(stage, "queue", "status", "--json"))
    return said


def _novel(stage: Stage, *arguments: str) -> str:
    done = subprocess.run(
        (sys.executable, "-P", "-m", "cli", *arguments),
        env=dict(stage.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Problem(f"novel {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
