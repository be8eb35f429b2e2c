"""Memory of the API process while it takes batches of 12 MiB: how much at most, and whether that grows.

The peak is set against a process that has only seen small batches: what the allocator keeps of a large one counts.
"""

import asyncio
import itertools
from collections.abc import Sequence
from functools import partial

from loadtests.bench import batches, door, process_memory, queue_tables
from loadtests.bench.batches import Batch, Form
from loadtests.bench.case import Bench, Bounded, Reading, Reset, Step
from loadtests.bench.door import Client

MB = 1e6
SMALL_BATCHES = 10
# The queue is emptied after so many, lest it fill the disk.
KEPT_BATCHES = 25
# An answer may be there before the memory of its batch is given back: the least of so many looks is what is kept.
LOOKS = 10


async def measure_peak(bench: Bench, *, times: int, step: Step, form: Form) -> Reading:
    """The most in use at any time, less what is in use before the first large batch."""
    large = batches.prepared(batches.large_texts(form), form, count=2)
    with queue_tables.owned(bench) as empty, door.opened(bench) as served, served.client() as client:
        await _push(client, _small(), SMALL_BATCHES)
        before = process_memory.resident_bytes(served.pid)
        process_memory.forget_peak(served.pid)
        await _push(client, large, times, empty=empty, step=step)
        peak = process_memory.peak_bytes(served.pid)
        kept = process_memory.resident_bytes(served.pid)
        process_memory.forget_peak(served.pid)
        await _push(client, large, 2)
        again = process_memory.peak_bytes(served.pid)
    size = large[0].size
    note = (
        f"{before / MB:.0f} MB before, {kept / MB:.0f} MB after {times} batches;"
        f" a further one takes {(again - kept) / size:.2f} times its size on top of that."
    )
    return Reading(figure=(peak - before) / MB, base=size / MB, notes=(note,))


async def measure_growth(bench: Bench, *, times: int, step: Step) -> Reading:
    """What is in use after all batches, less what was in use after the first tenth of them, or the first ten."""
    large = batches.prepared(batches.large_texts(batches.JSON), batches.JSON, count=2)
    looks: list[int] = []
    with queue_tables.owned(bench) as empty, door.opened(bench) as served, served.client() as client:

        def look(count: int) -> None:
            looks.append(process_memory.resident_bytes(served.pid))
            step(count)

        await _push(client, large, times, empty=empty, step=look)
    first = min(times, max(LOOKS, times // 10))
    early, late = _kept(looks[:first]), _kept(looks)
    note = f"{early / MB:.0f} MB after {first} batches, {late / MB:.0f} MB after {times}."
    return Reading(figure=(late - early) / MB, base=large[0].size / MB, notes=(note,))


async def _push(
    client: Client, prepared: Sequence[Batch], times: int, *, empty: Reset | None = None, step: Step | None = None
) -> None:
    """Push so many, one after the other."""
    for number, batch in enumerate(itertools.islice(itertools.cycle(prepared), times), 1):
        await asyncio.to_thread(client.push, batch)
        if step:
            step(1)
        if empty and number % KEPT_BATCHES == 0:
            empty()


def _small() -> list[Batch]:
    return batches.prepared(batches.texts()[:1], batches.JSON, count=1)


def _kept(looks: Sequence[int]) -> int:
    return min(looks[-LOOKS:])


CASES = [
    *(
        Bounded(
            name=f"ingest.memory.{form.name}",
            title=f"Peak memory of a batch of 12 MiB ({form.title}) against its size",
            unit="MB",
            base_unit="MB",
            measure=partial(measure_peak, form=form),
            at_most=6.0,
            times=20,
            quick_times=5,
            in_quick=form is batches.JSON,
        )
        for form in batches.FORMS
    ),
    Bounded(
        name="ingest.memory.growth",
        title="Growth of memory from 100 to 1,000 batches of 12 MiB against the size of one",
        unit="MB",
        base_unit="MB",
        measure=measure_growth,
        at_most=1.0,
        times=1000,
        quick_times=50,
    ),
]
