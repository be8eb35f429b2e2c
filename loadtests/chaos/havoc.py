"""Strikes at workers, from a seed: who, how and when. A kill is SIGKILL; a stop is SIGSTOP for longer than the lease.

Most strikes wait until somebody has work in hand, and then a moment; the others come when they come.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from loadtests.chaos import crew
from loadtests.chaos.crew import Crew, Post
from loadtests.chaos.pace import Pace
from schema.connection import Connection

STOPPED_SHARE = 0.25
BLIND_SHARE = 0.25
INTERVAL_SECONDS = (0.0, 0.3)
# From then on a strike does not wait for work any more.
PATIENCE_SECONDS = 1.0
# For work to get on; it may itself wait for what is not pushed yet.
LONGEST_WAIT_SECONDS = 3.0
MOMENT_SECONDS = 0.03
AGAIN_SECONDS = 0.5
# Beyond the lease: the others look every two seconds at most who is silent.
STOPPED_SECONDS = (1.0, 2.5)


@dataclass(frozen=True, slots=True)
class Strike:
    is_stop: bool
    victim: float
    """Which of those that are at work (up, if it is blind), as a share of their number."""
    is_blind: bool
    interval_seconds: float
    moment_seconds: float
    seconds: float
    """Of a stop beyond the lease; of a kill until the process is started again."""


@dataclass(slots=True)
class Tally:
    kills: int = 0
    stops: int = 0
    in_work: int = 0
    """Strikes whose victim had work in hand."""


def strikes(seed: int) -> Iterator[Strike]:
    """Without end, and the same for the same seed."""
    random = Random(f"havoc {seed}")
    while True:
        is_stop = random.random() < STOPPED_SHARE
        yield Strike(
            is_stop=is_stop,
            victim=random.random(),
            is_blind=random.random() < BLIND_SHARE,
            interval_seconds=random.uniform(*INTERVAL_SECONDS),
            # To stand between a claim and what comes of it, a stop has to come at once.
            moment_seconds=0.0 if is_stop else random.uniform(0, MOMENT_SECONDS),
            seconds=random.uniform(*STOPPED_SECONDS) if is_stop else random.uniform(0, AGAIN_SECONDS),
        )


class Havoc:
    def __init__(self, conn: Connection, workers: Crew, pace: Pace, *, seed: int, lease_seconds: float) -> None:
        self.tally = Tally()
        self._conn = conn
        self._crew = workers
        self._pace = pace
        self._strikes = strikes(seed)
        self._next = next(self._strikes)
        self._lease_seconds = lease_seconds
        self._at = time.monotonic()
        self._patience_ends: float | None = None

    def step(self) -> None:
        """Strike, if it is time to. Returns at once, but for the last moment before a strike."""
        now = time.monotonic()
        if now < self._at or self._pace.has_struck_all():
            return
        if not self._pace.may_strike() and now < self._at + LONGEST_WAIT_SECONDS:
            return
        up = list(self._crew.up())
        busy = crew.busy(self._conn)
        choice = up if self._next.is_blind else [post for post in up if post.child.pid in busy]
        if not choice:
            self._patience_ends = self._patience_ends or now + PATIENCE_SECONDS
            if now < self._patience_ends or not up:
                return
            choice = up
        victim = choice[int(self._next.victim * len(choice))]
        time.sleep(self._next.moment_seconds)
        self._strike(victim, in_work=victim.child.pid in busy)

    def _strike(self, victim: Post, *, in_work: bool) -> None:
        strike = self._next
        if strike.is_stop:
            self._crew.pause(victim, seconds=self._lease_seconds + strike.seconds)
        else:
            self._crew.kill(victim, again_seconds=strike.seconds)
        self.tally.stops += strike.is_stop
        self.tally.kills += not strike.is_stop
        self.tally.in_work += in_work
        self._patience_ends = None
        self._next = next(self._strikes)
        self._at = time.monotonic() + strike.interval_seconds
        self._pace.struck()
