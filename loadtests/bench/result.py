"""What was measured, and what follows from it."""

from dataclasses import dataclass
from statistics import median

from loadtests.bench.case import Bounded, Case, Reading

INFORMATION, MET, MISSED = "—", "met", "missed"


@dataclass(frozen=True, slots=True)
class Round:
    """Units per second of both sides, measured one right after the other."""

    ours: float
    bare: float

    @property
    def ratio(self) -> float:
        return self.ours / self.bare


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    rounds: tuple[Round, ...]

    @property
    def ours(self) -> float:
        return median(one.ours for one in self.rounds)

    @property
    def bare(self) -> float:
        return median(one.bare for one in self.rounds)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: what slows the machine for a while slows both sides of a round."""
        return median(one.ratio for one in self.rounds)

    @property
    def noise(self) -> float:
        """Half the spread of the rounds' ratios, as a share of the ratio."""
        ratios = [one.ratio for one in self.rounds]
        return (max(ratios) - min(ratios)) / 2 / self.ratio

    @property
    def verdict(self) -> str:
        if self.case.target is None:
            return INFORMATION
        return MET if self.ratio >= self.case.target else MISSED


@dataclass(frozen=True, slots=True)
class BoundedResult:
    case: Bounded
    reading: Reading

    @property
    def ratio(self) -> float:
        return self.reading.figure / self.reading.base

    @property
    def verdict(self) -> str:
        if self.case.at_most is None:
            return INFORMATION
        return MET if self.ratio <= self.case.at_most else MISSED


AnyResult = Result | BoundedResult
