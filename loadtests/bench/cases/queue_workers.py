"""Workers with a full queue: how fast they are against the floor of the specification, and what memory they take."""

import time
from pathlib import Path

from loadtests.bench import batches, pipeline, process_memory
from loadtests.bench.case import Bench, Bounded, Reading, Step
from loadtests.bench.pipeline import Crew

MB = 1e6
# A hundred times the specification's 2,000 chapters a minute.
FLOOR_PER_SECOND = 100 * 2000 / 60
MOST_MB = 200
# What the first batches need stays: growth is counted after them.
EARLY_SHARE = 5


async def measure_floor(bench: Bench, *, times: int, step: Step) -> Reading:
    """The time for a full queue, from the first batch that is done to the last, against what the floor allows."""
    todo = pipeline.new_chapters()
    seconds, done = 0.0, 0
    with pipeline.stage(bench) as reset:
        async with pipeline.running(bench, Crew(), with_workers=False) as line:
            for _ in range(times):
                reset()
                await line.push(todo)
                with pipeline.workers(line.served, Crew()):
                    await line.finished(down_to=len(todo) - 1)
                    started = time.perf_counter()
                    await line.finished()
                    seconds += time.perf_counter() - started
                done += len(todo) - 1
                step(1)
    items = done * batches.CHAPTERS
    note = f"{items / seconds:,.0f} chapters/s, {items / seconds * 60:,.0f} a minute, by one `novel ingest-worker`."
    return Reading(figure=seconds, base=items / FLOOR_PER_SECOND, notes=(note,))


async def measure_memory(bench: Bench, *, times: int, step: Step) -> Reading:
    """The most that any worker process had in use while batches came without end."""
    largest, early = 0, 0
    with pipeline.stage(bench) as reset:
        async with pipeline.running(bench, Crew(), with_workers=False) as line:
            reset()
            todo = pipeline.new_chapters()
            with pipeline.workers(line.served, Crew()) as child:
                for number in range(times):
                    reset()
                    await line.push(todo)
                    await line.finished()
                    pids = _processes_of(child.pid)
                    largest = max(process_memory.peak_bytes(pid) for pid in pids)
                    if number < max(1, times // EARLY_SHARE):
                        early = largest
                    step(1)
    items = times * len(todo) * batches.CHAPTERS
    note = f"{early / MB:.0f} MB after the first fifth, {largest / MB:.0f} MB after {items:,} chapters."
    return Reading(figure=largest / MB, base=MOST_MB, notes=(note,))


def _processes_of(pid: int) -> list[int]:
    """A worker's command, and the processes that it has started."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


CASES = [
    Bounded(
        name="queue.floor",
        title="Time for 12,000 chapters that wait against a hundred times the specification's floor",
        unit="s",
        base_unit="s",
        measure=measure_floor,
        at_most=1.0,
        times=3,
        quick_times=1,
    ),
    Bounded(
        name="queue.memory",
        title="Most memory of a worker process at full speed against 200 MB",
        unit="MB",
        base_unit="MB",
        measure=measure_memory,
        at_most=1.0,
        times=40,
        quick_times=3,
    ),
]
