"""Worker processes of tests, started from the command line and watched from outside."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from schema.connection import Connection
from tests.conftest import clean_environ, novel_executable
from tests.processes import children_of, kill, wait_for

# Retries at once, and looks at the queue far apart unless somebody rings.
QUICK = {"NOVEL_RETRY_SECONDS": "0", "NOVEL_POLL_SECONDS": "0.1", "NOVEL_LOG_FORMAT": "json"}
CHAPTERS = ("ingest-worker", "chapters")
STORIES = ("ingest-worker", "stories")


class Working:
    """A `novel ingest-worker` of a test."""

    def __init__(self, output: Path, variables: Mapping[str, str], *arguments: str) -> None:
        self.output = output
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [novel_executable(), *arguments],
                env=clean_environ(QUICK | dict(variables)),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.output.read_text()

    def wait(self, *, seconds: float = 60) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.said()}") from None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait_until(self, words: str) -> None:
        wait_for(lambda: words in self.said() or self.process.poll() is not None)
        assert words in self.said(), self.said()


@contextmanager
def working(directory: Path, variables: Mapping[str, str], *arguments: str, is_ready: bool = True) -> Iterator[Working]:
    """It is gone after the block, whatever happened."""
    started = Working(directory / f"worker-{len(list(directory.iterdir()))}.out", variables, *arguments)
    try:
        if is_ready:
            started.wait_until(" works")
        yield started
    finally:
        if started.process.poll() is None:
            offspring = children_of(started.pid)
            started.process.kill()
            started.process.wait()
            kill(offspring)


def joined(conn: Connection) -> dict[int, int]:
    """Process ids of the workers that have joined, by worker id."""
    return dict(conn.fetch_all("SELECT id, pid FROM wp_novel_workers ORDER BY id"))


@contextmanager
def slow_chapters(conn: Connection, *, seconds: float = 600, slug: str = "slow") -> Iterator[None]:
    """Whoever writes such a chapter waits in the database, until the block ends or the time is over."""
    lock = f"test-{os.getpid()}-{slug}"
    conn.execute(
        "CREATE TRIGGER wp_novel_test_slow BEFORE INSERT ON wp_novel_chapters FOR EACH ROW BEGIN"
        f" DECLARE held INT; IF NEW.slug = '{slug}' THEN SET held = GET_LOCK('{lock}', {seconds});"
        f" SET held = RELEASE_LOCK('{lock}'); END IF; END"
    )
    conn.fetch_all(f"SELECT GET_LOCK('{lock}', 0)")
    try:
        yield
    finally:
        conn.fetch_all(f"SELECT RELEASE_LOCK('{lock}')")
        conn.execute("DROP TRIGGER wp_novel_test_slow")


def let_go(conn: Connection, *, slug: str = "slow") -> None:
    """Let the slow chapters be written."""
    conn.fetch_all(f"SELECT RELEASE_LOCK('test-{os.getpid()}-{slug}')")


def are_held_up(conn: Connection) -> int:
    """How many wait with a slow chapter."""
    return len(conn.fetch_all("SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'"))


def is_held_up(conn: Connection) -> bool:
    return are_held_up(conn) > 0
