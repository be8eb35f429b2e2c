"""Keeps a set of child processes alive: whichever dies is started again, with backoff, and the rest goes on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime import children, logs, metrics
from runtime.children import Child, Command
from runtime.problems import Problem
from runtime.shutdown import Stop

log = logs.get(__name__)

CHECK_SECONDS = 0.1
FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 30.0
STEADY_SECONDS = 30.0


def restart_delay(quick_deaths: int) -> float:
    """Seconds to wait before a start, after that many deaths in a row that came soon after a start."""
    doublings = min(max(0, quick_deaths - 1), 32)  # a child may die for days: 2.0 ** 1024 is no number any more
    return min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0**doublings)


@dataclass
class _Post:
    """A place that one command fills, again and again."""

    make: Callable[[], Command]
    child: Child | None = None
    quick_deaths: int = 0
    start_at: float = field(default_factory=time.monotonic)
    is_done: bool = False


class Supervisor:
    """Children are stopped in the reverse order of their start: what serves others ends last."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._posts: list[_Post] = []

    def add(self, make: Callable[[], Command]) -> Child:
        """Start a command now and look after it from now on. `make` is asked again before each restart."""
        post = _Post(make)
        child = post.child = children.start(make())
        self._posts.append(post)
        return child

    def run(self) -> None:
        """Look after the children until the stop, or until all of them have done what they were for."""
        while not self._stop.wait(CHECK_SECONDS):
            for post in self._posts:
                self._check(post, time.monotonic())
            if self._posts and all(post.is_done for post in self._posts):
                return

    def stop_all(self, *, at_once: bool = False) -> None:
        """Stop them one after the other, or all at once where none needs another to finish its work."""
        if at_once:
            for post in self._posts:
                if post.child:
                    post.child.ask_to_stop()
        for post in reversed(self._posts):
            if post.child:
                log.debug("child.stopping", name=post.child.command.name, pid=post.child.pid)
                post.child.stop()

    def _check(self, post: _Post, now: float) -> None:
        if post.child and (code := post.child.exit_code()) is not None:
            self._ended(post, post.child, code, now)
        if post.child is None and not post.is_done and now >= post.start_at:
            try:
                post.child = children.start(post.make())
            except Problem as problem:
                post.quick_deaths += 1
                post.start_at = now + restart_delay(post.quick_deaths)
                log.error("child.not_started", error=str(problem))
            else:
                log.info("child.restarted", name=post.child.command.name, pid=post.child.pid)

    def _ended(self, post: _Post, child: Child, code: int, now: float) -> None:
        metrics.forget_process(child.pid)
        post.child = None
        name, pid, lived = child.command.name, child.pid, now - child.started_at
        if code in child.command.done_codes:
            post.is_done = True
            log.info("child.done", name=name, pid=pid, lived_seconds=round(lived, 1))
            return
        post.quick_deaths = 1 if lived >= STEADY_SECONDS else post.quick_deaths + 1
        delay = restart_delay(post.quick_deaths)
        post.start_at = now + delay
        is_expected = code in child.command.again_codes
        (log.info if is_expected else log.error)(
            "child.ended" if is_expected else "child.died",
            name=name,
            pid=pid,
            exit_code=code,
            lived_seconds=round(lived, 1),
            restart_in_seconds=delay,
            last_output=child.last_output(3),
        )
