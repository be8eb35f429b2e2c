"""A benchmark: our way of doing some work beside the least program that could do the same.

A side is opened once for a case and yields its work: a function that does a small piece and returns how many units it
did. The harness calls it again and again for the length of a sample. What must not be measured (connecting, making
data) belongs before the yield. Work may be synchronous or asynchronous.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass

from loadtests.catalogue.sizes import Sizes
from runtime.settings import Settings
from schema import prefix

Work = Callable[[], int] | Callable[[], Awaitable[int]]
Reset = Callable[[], None]


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
    """Lower-case words; the part before a dot is a group, which `--only` takes too."""
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
