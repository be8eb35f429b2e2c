"""A benchmark: our way of doing some work beside the least program that could do the same, or a figure with a bound.

A case has two sides. A side is opened once and yields its work: a function that does a small piece and returns how many
units it did. The harness calls it again and again for the length of a sample. What must not be measured (connecting,
making data) belongs before the yield. Work may be synchronous or asynchronous.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from loadtests.catalogue.sizes import Sizes
from runtime.settings import Settings
from schema import prefix

Work = Callable[[], int] | Callable[[], Awaitable[int]]
Reset = Callable[[], None]
Step = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """What a case is given: where the database is, and what is in it."""

    settings: Settings
    sizes: Sizes

    def written(self, sql: str) -> str:
        """A statement for the table prefix in use, for drivers that do not know of it."""
        return prefix.rewrite(sql, self.settings.database.table_prefix)


Side = Callable[[Bench], AbstractContextManager[Work] | AbstractAsyncContextManager[Work]]
Stage = Callable[[Bench], AbstractContextManager[Reset]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    """Lower-case words; what stands before a dot is a group, which `--only` takes too."""
    title: str
    unit: str
    """What is counted, in the plural: "reads" gives reads/s."""
    ours: Side
    bare: Side
    target: float | None = None
    """The least ratio of ours to bare; None: for information only."""
    needs_catalogue: bool = True
    in_quick: bool = True
    """Whether it runs with `--quick` even when it is not asked for by name."""
    stage: Stage | None = None
    """Around the whole case. It yields a function that is called before each sample, unmeasured, and makes all
    samples begin alike."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a bounded case found: a figure, and what it is set against."""

    figure: float
    base: float
    notes: tuple[str, ...] = ()
    """What helps to judge it, a sentence each."""


class Measure(Protocol):
    async def __call__(self, bench: Bench, *, times: int, step: Step) -> Reading:
        """Do the work so many times, and tell `step` of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A figure that may be at most so many times its base: memory against the size of a body, for example."""

    name: str
    title: str
    unit: str
    """Of the figure."""
    base_unit: str
    measure: Measure
    at_most: float | None = None
    """The largest ratio of figure to base; None: for information only."""
    times: int
    quick_times: int
    needs_catalogue: bool = False
    in_quick: bool = True


AnyCase = Case | Bounded
