"""What became of items, counted until it is added to the current minute."""

from collections import Counter
from collections.abc import Sequence

from store.jobs import Verdict
from store.minutes import Tally
from worker import verdicts


class Tallies:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = {}

    def add(self, written: Sequence[Verdict]) -> None:
        for key, counts in verdicts.tally(written).items():
            self._counts.setdefault(key, Counter()).update(counts)

    def take(self) -> list[Tally]:
        """What was counted since the last time."""
        taken, self._counts = self._counts, {}
        return [
            Tally(job_type=job_type, source=source, **counts) for (job_type, source), counts in sorted(taken.items())
        ]

    def put_back(self, rows: Sequence[Tally]) -> None:
        """Count again what could not be written."""
        for row in rows:
            counts = self._counts.setdefault((row.job_type, row.source), Counter())
            counts.update(
                completed=row.completed, stale=row.stale, retried=row.retried, failed=row.failed, dead=row.dead
            )
