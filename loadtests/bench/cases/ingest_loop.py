"""Whether batches of 12 MiB hold up the event loop: its delays, as the service measures them, and health checks beside.

The service looks at its loop every 10 ms, so it sees a block up to 10 ms too short: what it saw as 40 ms may have been
50, and counts. A health check that took more than 100 ms counts too. Before the batches the same is measured without
any, because a busy machine delays whatever runs on it.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from loadtests.bench import batches, door, queue_tables
from loadtests.bench.batches import Form
from loadtests.bench.case import Bench, Bounded, Reading, Step
from loadtests.bench.door import Client, Door

DELAY = "novel_event_loop_delay_seconds"
LIMIT_SECONDS, SHORT_SECONDS = 0.04, 0.02
SLOW_CHECK_SECONDS = 0.1
WARM_UP_BATCHES = 2
KEPT_BATCHES = 25
IDLE_SECONDS_PER_BATCH = 0.2
# The service looks at its loop every 10 ms: what it saw last is counted by then.
SETTLE_SECONDS = 0.1
# All the time, but not so often that asking is the load.
CHECK_EVERY_SECONDS = 0.005


@dataclass(slots=True)
class Watched:
    """What was seen from outside while something went on."""

    delays: int = 0
    """Delays of the loop over the limit."""
    short_delays: int = 0
    """Delays over SHORT_SECONDS, those over the limit too."""
    checks: int = 0
    slow_checks: int = 0
    """Health checks that took longer than SLOW_CHECK_SECONDS."""
    slowest_seconds: float = 0.0
    """The slowest health check."""


async def measure(bench: Bench, *, times: int, step: Step, form: Form) -> Reading:
    large = batches.prepared(batches.large_texts(form), form, count=2)
    with (
        queue_tables.owned(bench) as empty,
        door.opened(bench) as served,
        served.client() as client,
    ):
        for batch in large[:WARM_UP_BATCHES]:
            await asyncio.to_thread(client.push, batch)
        with watching(served, client) as idle:
            await asyncio.sleep(times * IDLE_SECONDS_PER_BATCH)
        with watching(served, client) as busy:
            for number, batch in enumerate(itertools.islice(itertools.cycle(large), times), 1):
                await asyncio.to_thread(client.push, batch)
                step(1)
                if number % KEPT_BATCHES == 0:
                    empty()
    notes = (f"beside batches: {_told(busy)}", f"without batches: {_told(idle)}")
    return Reading(figure=busy.delays + busy.slow_checks, base=times, notes=notes)


@contextlib.contextmanager
def watching(served: Door, client: Client) -> Iterator[Watched]:
    """Ask for health all the time while the block runs; what was seen is known after it."""
    seen = Watched()
    stop = threading.Event()

    def ask() -> None:
        with served.client() as checker:
            while not stop.is_set():
                started = time.perf_counter()
                checker.get("/healthz")
                seconds = time.perf_counter() - started
                seen.slow_checks += seconds > SLOW_CHECK_SECONDS
                seen.slowest_seconds = max(seen.slowest_seconds, seconds)
                seen.checks += 1
                stop.wait(CHECK_EVERY_SECONDS)

    before = client.get("/metrics").decode()
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            yield seen
        finally:
            stop.set()
    asking.result()  # raises what went wrong there
    time.sleep(SETTLE_SECONDS)
    after = client.get("/metrics").decode()
    seen.delays = delays(after, over=LIMIT_SECONDS) - delays(before, over=LIMIT_SECONDS)
    seen.short_delays = delays(after, over=SHORT_SECONDS) - delays(before, over=SHORT_SECONDS)


def delays(metrics: str, *, over: float) -> int:
    """How often the loop was late by more than so many seconds, which are a bound of the histogram."""
    samples = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith(DELAY))
    return int(float(samples[f"{DELAY}_count"]) - float(samples[f'{DELAY}_bucket{{le="{over}"}}']))


def _told(seen: Watched) -> str:
    return (
        f"{seen.delays} delays over {LIMIT_SECONDS * 1000:.0f} ms, {seen.short_delays} over"
        f" {SHORT_SECONDS * 1000:.0f} ms; the slowest of {seen.checks} /healthz took"
        f" {seen.slowest_seconds * 1000:.0f} ms."
    )


CASES = [
    Bounded(
        name=f"ingest.loop.{form.name}",
        title=f"Blocks of the event loop over 50 ms, and slow health checks, by batches of 12 MiB ({form.title})",
        unit="delays",
        base_unit="batches",
        measure=partial(measure, form=form),
        at_most=0.0,
        times=30,
        quick_times=5,
        in_quick=form is batches.JSON,
    )
    for form in batches.FORMS
]
