"""The harness: which side runs when, what is reset, and that everything is closed again."""

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from loadtests.bench import measuring
from loadtests.bench.case import Bench, Bounded, Case, Reading, Reset, Step, Work
from loadtests.bench.measuring import Pace
from loadtests.bench.result import MET, BoundedResult, Result
from loadtests.catalogue.sizes import QUICK
from runtime import settings

BENCH = Bench(settings.load({}), QUICK)
# A sample of no length does its work exactly once.
AT_ONCE = Pace(rounds=4, sample_seconds=0, warm_up_seconds=0)


class Recorded:
    """A case whose sides write down what happens to them."""

    def __init__(self, *, ours_units: int = 1, bare_units: int = 1, fails_after: int = 1000) -> None:
        self.heard: list[str] = []
        self.steps = 0
        self._units = {"ours": ours_units, "bare": bare_units}
        self._left = fails_after
        self.case = Case(name="recorded", title="", unit="times", ours=self._ours, bare=self._bare, stage=self._stage)

    async def measure(self, pace: Pace = AT_ONCE) -> Result:
        return await measuring.measure(self.case, BENCH, pace, step=self._step)

    def _step(self, count: int) -> None:
        self.steps += count

    @contextlib.asynccontextmanager
    async def _ours(self, bench: Bench) -> AsyncIterator[Work]:
        async def work() -> int:
            return self._worked("ours")

        self.heard.append("open ours")
        try:
            yield work
        finally:
            self.heard.append("close ours")

    @contextlib.contextmanager
    def _bare(self, bench: Bench) -> Iterator[Work]:
        self.heard.append("open bare")
        try:
            yield lambda: self._worked("bare")
        finally:
            self.heard.append("close bare")

    @contextlib.contextmanager
    def _stage(self, bench: Bench) -> Iterator[Reset]:
        self.heard.append("stage")
        try:
            yield lambda: self.heard.append("reset")
        finally:
            self.heard.append("unstage")

    def _worked(self, side: str) -> int:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("the server is gone")
        self.heard.append(side)
        return self._units[side]


async def test_rounds_are_interleaved_and_no_side_always_comes_first() -> None:
    recorded = Recorded()
    await recorded.measure()
    samples = [event for event in recorded.heard if event in ("ours", "bare")]
    warm_up, rounds = samples[:2], samples[2:]
    assert warm_up == ["bare", "ours"]
    assert rounds == ["bare", "ours", "ours", "bare", "bare", "ours", "ours", "bare"]


async def test_each_sample_begins_with_a_reset_and_is_stepped() -> None:
    recorded = Recorded()
    result = await recorded.measure()
    work = recorded.heard[3:-3]
    assert work[::2] == ["reset"] * 10
    assert "reset" not in work[1::2]
    assert recorded.steps == 8  # the warm-up is not counted
    assert len(result.rounds) == 4


async def test_everything_is_opened_once_and_closed_in_the_end() -> None:
    recorded = Recorded()
    await recorded.measure()
    assert recorded.heard[:3] == ["stage", "open bare", "open ours"]
    assert recorded.heard[-3:] == ["close ours", "close bare", "unstage"]


async def test_everything_is_closed_when_the_work_fails() -> None:
    recorded = Recorded(fails_after=5)
    with pytest.raises(RuntimeError, match="the server is gone"):
        await recorded.measure()
    assert recorded.heard[-3:] == ["close ours", "close bare", "unstage"]


async def test_a_sides_units_are_its_own() -> None:
    fast = await Recorded(ours_units=10**9).measure()
    assert fast.ours > fast.bare
    slow = await Recorded(bare_units=10**9).measure()
    assert slow.ours < slow.bare


@pytest.mark.parametrize(("pace", "times"), [(measuring.FULL, 1000), (measuring.QUICK, 50)])
async def test_a_bounded_case_does_its_work_less_often_in_a_quick_run(pace: Pace, times: int) -> None:
    steps = 0

    async def measure(bench: Bench, *, times: int, step: Step) -> Reading:
        for _ in range(times):
            step(1)
        return Reading(figure=times, base=1000)

    def count(more: int) -> None:
        nonlocal steps
        steps += more

    case = Bounded(
        name="b", title="", unit="MB", base_unit="MB", measure=measure, at_most=1, times=1000, quick_times=50
    )
    result = await measuring.measure_any(case, BENCH, pace, step=count)
    assert isinstance(result, BoundedResult)
    assert (result.reading.figure, result.verdict) == (times, MET)
    assert measuring.steps(case, pace) == steps == times


def test_a_case_takes_two_steps_a_round() -> None:
    assert measuring.steps(Recorded().case, AT_ONCE) == 8
