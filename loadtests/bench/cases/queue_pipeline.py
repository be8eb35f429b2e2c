"""Chapters of 12 KB from the HTTP door to the tables, beside two connections that do nothing but write the same rows;
and the same chapters pushed again when nothing has changed, beside the first time."""

import contextlib
import itertools
import time
from collections.abc import AsyncIterator

from loadtests.bench import bare_chapters, pipeline
from loadtests.bench.case import Bench, Bounded, Case, Reading, Step, Work
from loadtests.bench.pipeline import Crew


@contextlib.asynccontextmanager
async def first_time(bench: Bench) -> AsyncIterator[Work]:
    """New chapters: the work is done when all of them are in the tables."""
    todo = itertools.cycle(pipeline.new_chapters(pipeline.STORIES))
    async with pipeline.running(bench, Crew()) as line:

        async def work() -> int:
            items = await line.push(list(itertools.islice(todo, pipeline.BATCHES_AT_ONCE)))
            await line.finished()
            return items

        yield work


async def measure_unchanged(bench: Bench, *, times: int, step: Step) -> Reading:
    """The time for chapters that are there already, pushed again in new batches, against that for the first time."""
    todo = pipeline.new_chapters()
    first: list[float] = []
    again: list[float] = []
    with pipeline.stage(bench) as reset:
        async with pipeline.running(bench, Crew(api_processes=2)) as line:
            reset()
            await line.push(todo)  # to warm up
            for _ in range(times):
                await line.finished()
                reset()
                for seconds in (first, again):
                    started = time.perf_counter()
                    items = await line.push(todo)
                    await line.finished()
                    seconds.append(time.perf_counter() - started)
                step(1)
    note = f"{items / min(first):,.0f} items/s the first time, {items / min(again):,.0f} when nothing has changed."
    return Reading(figure=sum(again) / times, base=sum(first) / times, notes=(note,))


_TITLE = "Chapters of 12 KB from HTTP to the tables against two bare pymysql connections that"
CASES: list[Case | Bounded] = [
    Case(
        name="queue.pipeline",
        title=f"{_TITLE} compress the same texts and write the same rows",
        unit="items",
        ours=first_time,
        bare=bare_chapters.COMPRESSING,
        target=0.5,
        needs_catalogue=False,
        stage=pipeline.stage,
    ),
    Case(
        name="queue.pipeline_of_ready_rows",
        title=f"{_TITLE} write the same rows, compressed beforehand",
        unit="items",
        ours=first_time,
        bare=bare_chapters.OF_READY_ROWS,
        target=0.5,
        needs_catalogue=False,
        in_quick=False,
        stage=pipeline.stage,
    ),
    Bounded(
        name="queue.unchanged",
        title="Time for 12,000 chapters that have not changed against that for the first time",
        unit="s",
        base_unit="s",
        measure=measure_unchanged,
        at_most=0.5,
        times=5,
        quick_times=2,
    ),
]
