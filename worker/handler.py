"""What a worker does with items of one kind, and what can become of each: done, stale, wait, try again, give up."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from store.connection import Connection
from store.events import New
from store.jobs import Job
from store.pool import Pool


@dataclass(frozen=True, slots=True)
class Done:
    job: Job
    is_stale: bool = False
    """It changed nothing, because something newer was there."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """What it needs is not there, or in its way: that may change."""

    job: Job
    code: str
    message: str
    waits_for_story: str | None = None
    """The source's id of a story whose arrival makes it due at once."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No repetition can mend it: the item itself has to change."""

    job: Job
    code: str
    message: str


Outcome = Done | TryAgain | GiveUp


@dataclass(slots=True)
class Applied:
    """What came of some items, and what is left to do for all of them at the end of the transaction."""

    outcomes: list[Outcome] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    """Stories whose counts have to be computed again."""
    events: list[New] = field(default_factory=list)

    def __iadd__(self, other: "Applied") -> "Applied":
        self.outcomes += other.outcomes
        self.touched |= other.touched
        self.events += other.events
        return self


class Handler(Protocol):
    job_type: str

    async def prepare(self, pool: Pool, jobs: Sequence[Job]) -> None:
        """Do beforehand what takes time and needs no lock."""

    async def apply(self, conn: Connection, jobs: Sequence[Job]) -> Applied:
        """Apply items within a transaction, which may be run again: touch nothing but the database."""

    async def committed(self, pool: Pool, outcomes: Sequence[Outcome]) -> Collection[str]:
        """Called when the transaction has been committed; returns the types of jobs that have become due by it.

        What is lost here must be no more than time.
        """


INVALID = "invalid_item"


def unreadable(job: Job) -> GiveUp:
    return GiveUp(job, INVALID, "The payload of this item is gone or cannot be read. Push the item again.")
