"""Measures a case in rounds: bare, ours, then ours, bare, and so on, so that no side always comes first."""

import asyncio
import contextlib
import gc
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

from loadtests.bench.case import AnyCase, Bench, Bounded, Case, Reset, Side, Step, Work
from loadtests.bench.result import AnyResult, BoundedResult, Result, Round


@dataclass(frozen=True, slots=True)
class Pace:
    rounds: int
    sample_seconds: float
    warm_up_seconds: float
    is_quick: bool = False


QUICK = Pace(rounds=5, sample_seconds=0.35, warm_up_seconds=0.1, is_quick=True)
FULL = Pace(rounds=7, sample_seconds=1.0, warm_up_seconds=0.5)


def steps(case: AnyCase, pace: Pace) -> int:
    """How many steps a case takes: two samples a round, or as often as a bounded case does its work."""
    return _times(case, pace) if isinstance(case, Bounded) else pace.rounds * 2


async def measure_any(case: AnyCase, bench: Bench, pace: Pace, *, step: Step) -> AnyResult:
    if isinstance(case, Bounded):
        return BoundedResult(case, await case.measure(bench, times=_times(case, pace), step=step))
    return await measure(case, bench, pace, step=step)


async def measure(case: Case, bench: Bench, pace: Pace, *, step: Step) -> Result:
    """Run all rounds of a case; `step` hears of each finished sample (two a round)."""
    async with AsyncExitStack() as stack:
        reset = stack.enter_context(case.stage(bench)) if case.stage else _nothing
        bare, ours = await _open(stack, case.bare, bench), await _open(stack, case.ours, bench)
        for work in (bare, ours):
            await sample(work, reset, seconds=pace.warm_up_seconds)
        rounds = []
        for number in range(pace.rounds):
            rates: dict[str, float] = {}
            for name in order(number):
                rates[name] = await sample(ours if name == "ours" else bare, reset, seconds=pace.sample_seconds)
                step(1)
            rounds.append(Round(**rates))
    return Result(case, tuple(rounds))


def order(number: int) -> tuple[str, str]:
    return ("ours", "bare") if number % 2 else ("bare", "ours")


async def sample(work: Work, reset: Reset, *, seconds: float) -> float:
    """Do the work, at least once, for so many seconds; returns units per second."""
    reset()
    gc.collect()  # what one side left must not be swept up on the other's time
    units = 0
    started = time.perf_counter()
    while True:
        done = work()
        units += done if isinstance(done, int) else await done
        passed = time.perf_counter() - started
        if passed >= seconds:
            break
    await asyncio.sleep(0)  # synchronous work never yields: here Ctrl-C is noticed
    return units / passed


async def _open(stack: AsyncExitStack, side: Side, bench: Bench) -> Work:
    opened = side(bench)
    if isinstance(opened, AbstractAsyncContextManager):
        return await stack.enter_async_context(opened)
    with contextlib.ExitStack() as inner:
        work = inner.enter_context(opened)
        stack.push(inner.pop_all())
    return work


def _times(case: Bounded, pace: Pace) -> int:
    return case.quick_times if pace.is_quick else case.times


def _nothing() -> None:
    pass
