"""What became of a push: counts, the first examples of what went wrong, said at once and summed up in the end."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from cli.pushing.items import CHAPTERS, STORIES, Rejection, Route

MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that was accepted, and could not be stored."""

    external_id: str
    code: str
    message: str


@dataclass(slots=True)
class Report:
    say: Callable[[str], None]
    """Takes a line at once: about what is rejected, skipped or odd."""
    expected: Counter[str] = field(default_factory=Counter)
    """Good items by route, before anything is sent."""
    accepted: Counter[str] = field(default_factory=Counter)
    rejected: int = 0
    unreadable: int = 0
    """Of the rejected: those that were never good items."""
    given_up: int = 0
    """Sent in vain, as often as allowed."""
    processed: int = 0
    failed_later: int = 0
    skipped: int = 0
    batches: int = 0
    waited: bool = False
    problem: str | None = None
    rejections: list[Rejection] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def accept(self, route: Route, count: int) -> None:
        self.accepted[route.name] += count
        self.batches += 1

    def reject(self, rejection: Rejection) -> None:
        self.rejected += rejection.count
        if len(self.rejections) < MAX_SHOWN:
            self.rejections.append(rejection)
            items = f" ({rejection.count} items)" if rejection.count > 1 else ""
            self.say(f"{rejection.place}{items}: {rejection.code}: {rejection.message}")

    def give_up(self, place: str, count: int, reason: str) -> None:
        self.given_up += count
        self.say(f"{place}: given up: {reason}.")

    def fail(self, failure: Failure) -> None:
        """Remember one of those that `failed_later` counts."""
        if len(self.failures) < MAX_SHOWN:
            self.failures.append(failure)
            self.say(f"{failure.external_id}: failed: {failure.code}: {failure.message}")

    def warn(self, text: str) -> None:
        if text not in self.warnings and len(self.warnings) < MAX_SHOWN:
            self.warnings.append(text)
            self.say(f"warning: {text}")

    @property
    def failed(self) -> int:
        return self.given_up + self.failed_later

    @property
    def waiting(self) -> int:
        """Accepted, and as far as we know still in the queue."""
        return max(0, self.accepted.total() - self.processed - self.failed_later)

    @property
    def unsent(self) -> int:
        """Good items that nobody tried to send, because the run ended before."""
        sent = self.accepted.total() + self.rejected - self.unreadable + self.given_up
        return max(0, self.expected.total() - sent)

    @property
    def went_well(self) -> bool:
        return not (self.rejected or self.failed or self.unsent or self.problem)

    def lines(self) -> list[str]:
        """The end of the story, in words."""
        more = self.rejected - sum(rejection.count for rejection in self.rejections)
        said = [f"... and {more} more were rejected."] if more else []
        more = self.failed_later - len(self.failures)
        if self.failures and more > 0:
            said.append(f"... and {more} more failed.")
        kinds = ", ".join(f"{route.name}: {self.accepted[route.name]}" for route in (STORIES, CHAPTERS))
        said.append(
            f"Accepted {self.accepted.total()} ({kinds}, batches: {self.batches}),"
            f" rejected {self.rejected}, failed {self.failed}."
        )
        if self.skipped:
            said.append(f"Skipped {self.skipped} that have no text.")
        if self.unsent:
            said.append(f"Not sent: {self.unsent}. Push the same files again: what was accepted is not taken twice.")
        if self.waited and self.accepted:
            waiting = f", {self.waiting} still wait in the queue" if self.waiting else ""
            said.append(f"Processed {self.processed}{waiting}.")
        return said

    def rehearsed_lines(self) -> list[str]:
        """The end of a dry run."""
        stories, chapters = self.expected[STORIES.name], self.expected[CHAPTERS.name]
        said = f"Nothing was sent. Stories: {stories}, chapters: {chapters}, would be rejected: {self.rejected}"
        return [f"{said}, skipped: {self.skipped}." if self.skipped else f"{said}."]

    def as_json(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted.total(),
            "rejected": self.rejected,
            "failed": self.failed,
            "unsent": self.unsent,
            "skipped": self.skipped,
            "processed": self.processed,
            "waiting": self.waiting,
            "stories": self.accepted[STORIES.name],
            "chapters": self.accepted[CHAPTERS.name],
            "batches": self.batches,
            "rejections": [asdict(rejection) for rejection in self.rejections],
            "failures": [asdict(failure) for failure in self.failures],
            "warnings": self.warnings,
            "problem": self.problem,
        }
