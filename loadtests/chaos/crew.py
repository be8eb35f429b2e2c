"""The worker processes: whoever is killed is started again, and whoever is stopped goes on when its time has come."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.chaos.stage import Stage
from runtime import children
from runtime.children import Child, Command
from runtime.problems import Problem
from schema.connection import Connection

STORIES = ("ingest-worker", "stories")
CHAPTERS = ("ingest-worker", "chapters")
RECOUNTS = ("recount-worker", "stories")
# One of the chapter workers has two sets in flight.
FULL: Sequence[tuple[str, ...]] = (
    STORIES,
    STORIES,
    CHAPTERS,
    CHAPTERS,
    (*CHAPTERS, "--loops", "2"),
    RECOUNTS,
    RECOUNTS,
)
SMALL: Sequence[tuple[str, ...]] = (STORIES, CHAPTERS, (*CHAPTERS, "--loops", "2"), RECOUNTS)

STOP_SECONDS = 40.0

# A row for each process that has something in hand. One that was taken for dead joins anew, and may have two.
_BUSY = """
    SELECT w.pid FROM wp_novel_workers w JOIN wp_novel_ingest_leases l ON l.worker_id = w.id
    UNION SELECT w.pid FROM wp_novel_workers w JOIN wp_novel_story_recount_queue q ON q.locked_by = w.id
"""


@dataclass(slots=True)
class Post:
    """A place that a worker fills."""

    command: Command
    child: Child
    start_at: float | None = None
    """When it is started again; None: it runs."""
    goes_on_at: float | None = None
    """When it goes on; None: it is not stopped."""

    @property
    def is_up(self) -> bool:
        return self.start_at is None and self.goes_on_at is None


class Crew:
    """Call it from one thread: the kernel ties the life of a child to the thread that started it."""

    def __init__(self, stage: Stage, commands: Sequence[Sequence[str]]) -> None:
        self.output: Path = stage.directory / "workers.log"
        self.output.unlink(missing_ok=True)
        self.posts: list[Post] = []
        for number, arguments in enumerate(commands, 1):
            command = Command(
                name=f"worker {number} ({' '.join(arguments)})",
                argv=(sys.executable, "-P", "-m", "cli", *arguments),
                environ=stage.environ,
                output=self.output,
                stop_seconds=STOP_SECONDS,
            )
            self.posts.append(Post(command, children.start(command)))

    def tend(self) -> None:
        """Start those that are due, and let those go on whose time has come."""
        now = time.monotonic()
        for post in self.posts:
            if post.start_at is not None and now >= post.start_at:
                post.child, post.start_at = children.start(post.command), None
            elif post.goes_on_at is not None and now >= post.goes_on_at:
                post.goes_on_at = None
                os.kill(post.child.pid, signal.SIGCONT)
            elif post.is_up and (code := post.child.exit_code()) is not None:
                raise Problem(f"{post.command.name} ended by itself (exit code {code}). See {self.output}.")

    def up(self) -> Iterator[Post]:
        return (post for post in self.posts if post.is_up)

    def kill(self, post: Post, *, again_seconds: float) -> None:
        post.child.process.kill()
        post.child.process.wait()
        post.start_at = time.monotonic() + again_seconds

    def pause(self, post: Post, *, seconds: float) -> None:
        os.kill(post.child.pid, signal.SIGSTOP)
        post.goes_on_at = time.monotonic() + seconds

    def revive(self) -> None:
        """All of them at work again, now."""
        for post in self.posts:
            post.start_at = None if post.start_at is None else 0.0
            post.goes_on_at = None if post.goes_on_at is None else 0.0
        self.tend()

    def stop(self) -> list[str]:
        """End them as an operator does; returns who did not end well."""
        self.revive()
        for post in self.posts:
            post.child.ask_to_stop()
        for post in self.posts:
            post.child.stop()
        return [
            f"{post.command.name} ended with exit code {code}"
            for post in self.posts
            if (code := post.child.exit_code())
        ]

    def close(self) -> None:
        """End them, whatever happened."""
        for post in self.posts:
            if post.child.exit_code() is None:
                post.child.process.kill()
                post.child.process.wait()


def busy(conn: Connection) -> set[int]:
    """Processes that have taken something that is not done."""
    return {pid for (pid,) in conn.fetch_all(_BUSY)}
