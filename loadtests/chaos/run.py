"""One run: pushes a feed while workers are killed and stopped, waits until all is done, and compares with the model."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from loadtests.chaos import audit_catalogue, audit_queue, crew, drain, feed, havoc, model, stage
from loadtests.chaos.crawlers import Crawlers, Pushed
from loadtests.chaos.crew import Crew
from loadtests.chaos.drain import Standing
from loadtests.chaos.feed import Feed
from loadtests.chaos.havoc import Havoc
from loadtests.chaos.model import Catalogue
from loadtests.chaos.pace import Pace
from loadtests.chaos.stage import Rules, Stage
from runtime import progress
from schema.connection import Connection, connect

# Workers log these when the fence, or the rescue of what dead ones held, has done its work.
FENCED, TAKEN_FOR_DEAD, RESCUED = "jobs.set_interrupted", "worker.taken_for_dead", "worker.rescued"
ITEMS, STRIKES = 50_000, 220
LOOK_SECONDS = 0.2
STEP_SECONDS = 0.005
MAX_REPLAYS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    items: int = ITEMS
    strikes: int = STRIKES
    crew: Sequence[Sequence[str]] = crew.FULL
    rules: Rules = field(default_factory=Rules)
    patience_seconds: float = 90.0
    """Without any progress: then it is stuck."""


@dataclass(slots=True)
class Report:
    plan: Plan
    batches: int = 0
    items: int = 0
    accepted: int = 0
    failed: int = 0
    """As many as had to."""
    repeats: int = 0
    stories: int = 0
    chapters: int = 0
    strikes: havoc.Tally = field(default_factory=havoc.Tally)
    replayed: int = 0
    seconds: float = 0.0
    noted: Counter[str] = field(default_factory=Counter)
    """How often workers logged an event."""
    rescued_units: int = 0
    differences: list[str] = field(default_factory=list)


def run(environ: Mapping[str, str], plan: Plan, *, directory: Path = stage.DIRECTORY) -> Report:
    made = feed.make(seed=plan.seed, items=plan.items)
    expected = model.replay(feed.accepted(made.batches))
    report = begun(plan, made, expected)
    with stage.opened(environ, plan.rules, directory=directory) as opened, connect(opened.settings.database) as conn:
        pushed = perform(opened, conn, made, report)
        report.differences += pushed.wrong
        report.differences += compare(conn, made, pushed, expected)
    return report


def begun(plan: Plan, made: Feed, expected: Catalogue) -> Report:
    """What is known before it begins."""
    return Report(
        plan,
        batches=len(made.batches),
        items=made.items,
        accepted=sum(len(batch.accepted) for batch in made.batches),
        failed=len(expected.refused),
        stories=len(expected.stories),
        chapters=sum(map(len, expected.chapters.values())),
    )


def perform(opened: Stage, conn: Connection, made: Feed, report: Report) -> Pushed:
    """Push everything and strike at the workers meanwhile, until all is done and the workers have left."""
    plan = report.plan
    pace = Pace(batches=len(made.batches), strikes=plan.strikes)
    with contextlib.ExitStack() as stack:
        workers = Crew(opened, plan.crew)
        stack.callback(workers.close)
        crawlers = Crawlers(opened, made.batches, pace, seed=plan.seed)
        stack.callback(crawlers.close)
        striking = Havoc(conn, workers, pace, seed=plan.seed, lease_seconds=plan.rules.lease_seconds)
        with progress.bar("Items done", total=report.accepted) as step:
            watch = _Watch(conn, step, pace, items=report.accepted)
            started = time.monotonic()
            pushing = crawlers.start(first=len(made.first))
            while not (pushing.done() and pace.has_struck_all()):
                if pushing.done():
                    pushing.result()  # or what it died of
                workers.tend()
                striking.step()
                watch.now_and_then()
                time.sleep(STEP_SECONDS)
            pushing.result()
            workers.revive()
            _drain(opened, workers, watch, report)
            report.seconds = time.monotonic() - started
        report.differences += workers.stop()
    report.strikes, report.repeats = striking.tally, crawlers.pushed.repeats
    _read_log(workers.output, report)
    return crawlers.pushed


def compare(conn: Connection, made: Feed, pushed: Pushed, expected: Catalogue) -> list[str]:
    """What is not as it has to be, a sentence each."""
    return [
        *audit_queue.differences(conn, made.batches, pushed.requests, expected),
        *audit_catalogue.differences(conn, expected),
    ]


class _Watch:
    """Looks at the queue, and shows how far it is."""

    def __init__(self, conn: Connection, step: progress.Step, pace: Pace, *, items: int) -> None:
        self._conn = conn
        self._step = step
        self._pace = pace
        self._items = items
        self._shown = 0
        self._at = 0.0

    def now_and_then(self) -> None:
        if time.monotonic() - self._at >= LOOK_SECONDS:
            self.look()

    def look(self) -> Standing:
        self._at = time.monotonic()
        standing = drain.standing(self._conn)
        self._pace.done(standing.ended / self._items)
        if standing.ended > self._shown:  # a replay takes some back
            self._step(standing.ended - self._shown)
            self._shown = standing.ended
        return standing


def _drain(opened: Stage, workers: Crew, watch: _Watch, report: Report) -> None:
    """Wait for the end, and replay what gave up because its workers were killed."""
    for _ in range(MAX_REPLAYS):
        last = drain.wait(watch.look, tend=workers.tend, patience_seconds=report.plan.patience_seconds)
        said = drain.status(opened)
        if not last.is_drained:
            report.differences.append(f"stuck: {last}; novel queue status says {said}")
            return
        if said["waiting_items"] or said["processing_items"] or said["abandoned"]["items"]:
            report.differences.append(f"novel queue status does not see that all is done: {said}")
        again = drain.replay_crashed(opened) if said["dead_letter_items"] else 0
        if not again:
            return
        report.replayed += again


def _read_log(path: Path, report: Report) -> None:
    with path.open("rb") as lines:
        for line in lines:
            with contextlib.suppress(orjson.JSONDecodeError):  # the last line of who was killed
                event = orjson.loads(line)
                report.noted[event.get("event", "")] += 1
                if event.get("event") == RESCUED:
                    report.rescued_units += event["units"]


Say = Callable[[str], None]


def tell(report: Report, say: Say, *, most: int = 20) -> None:
    """The figures, and what is wrong."""
    strikes, noted = report.strikes, report.noted
    say(f"seed          {report.plan.seed}")
    say(f"pushed        {report.items:,} items in {report.batches} batches, {report.repeats} of them again")
    say(f"accepted      {report.accepted:,} items, of which {report.failed} had to fail")
    say(f"made          {report.stories:,} stories and {report.chapters:,} chapters")
    say(f"strikes       {strikes.kills} SIGKILL and {strikes.stops} SIGSTOP, {strikes.in_work} with work in hand")
    say(
        f"seen          {report.rescued_units} units rescued, {noted[FENCED]} sets stopped by the fence,"
        f" {noted[TAKEN_FOR_DEAD]} workers taken for dead, {report.replayed} dead letters replayed"
    )
    say(f"time          {report.seconds:.1f} s, {report.accepted / max(report.seconds, 0.001):,.0f} items/s")
    for difference in report.differences[:most]:
        say(f"  {difference}")
    if len(report.differences) > most:
        say(f"  ... and {len(report.differences) - most} more")
    say("0 lost, 0 doubled" if not report.differences else f"WRONG: {len(report.differences)} differences")
