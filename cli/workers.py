"""`novel ingest-worker` and `recount-worker`: processes that work the queue, one or several of a kind."""

import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click
import uvloop

from cli.console import load_settings, say
from runtime import cores, garbage, metrics
from runtime.children import Command
from runtime.problems import Problem
from runtime.settings import Settings
from runtime.shutdown import Stop, on_signals
from runtime.supervisor import Supervisor
from schema import connection, version
from store import errors
from worker import process
from worker.loop import DEFAULT_LIMIT
from worker.process import CHAPTERS, RECOUNTS, STORIES, Ended, Task

RECOUNT_LIMIT = 500
MAX_CONCURRENCY = 64
MAX_RUNTIME_SECONDS = 1e9
# Of a process that has grown too large, and wants to be started again (EX_TEMPFAIL).
AGAIN_CODE = 75
# What a process needs to end after the time that the work under way gets.
STOP_GRACE_SECONDS = 10.0

_MEMORY = re.compile(r"([0-9]{1,15})\s*([kmg]?)i?b?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30}
MIN_MEMORY_BYTES = 64 << 20

F = TypeVar("F", bound=Callable[..., Any])


def memory_form(text: str) -> int:
    """`512M`, `1G`, `268435456`."""
    match = _MEMORY.fullmatch(text.strip())
    size = int(match[1]) << _POWERS[match[2].lower()] if match else 0
    if size < MIN_MEMORY_BYTES:
        raise ValueError(f"{text!r} is no amount of memory. Give at least 64M, as 512M or 1G.")
    return size


def _memory(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else memory_form(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _number(_ctx: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):  # it is in every range
        raise click.BadParameter("'nan' is no number of seconds.")
    return value


def _options(*, limit: int, what: str) -> Callable[[F], F]:
    """Those that every worker has."""
    every = (
        click.option(
            "--concurrency",
            type=click.IntRange(1, MAX_CONCURRENCY),
            default=1,
            show_default=True,
            help="Sets worked at the same time, over as many processes as there are cores.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(1, 10_000),
            default=limit,
            show_default=True,
            help=f"{what} taken at once.",
        ),
        click.option(
            "--max-runtime",
            type=click.FloatRange(min=0.1, max=MAX_RUNTIME_SECONDS),
            callback=_number,
            help="Seconds after which to end. [default: never]",
        ),
        click.option("--memory-limit", callback=_memory, help="Size at which a process ends, as 512M. [default: none]"),
        click.option("--drain", is_flag=True, help="End, with exit code 0, once nothing is due."),
        click.option("--loops", type=click.IntRange(1, MAX_CONCURRENCY), hidden=True),
        click.option("--label", hidden=True, help="Tells this process from others like it in a list of processes."),
    )

    def decorate(command: F) -> F:
        for option in reversed(every):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for on the command line."""

    command: str
    kind: str
    concurrency: int
    limit: int
    max_runtime: float | None
    memory_limit: int | None
    drain: bool
    loops: int | None
    """Of a process that another of us has started: how many sets it works at the same time."""
    label: str | None

    def task(self, loops: int) -> Task:
        return Task(
            kind=self.kind,
            loops=loops,
            limit=self.limit,
            drain=self.drain,
            max_runtime_seconds=self.max_runtime,
            memory_limit_bytes=self.memory_limit,
        )


@click.command(short_help="Work on what crawlers have pushed.")
@click.argument("kind", type=click.Choice([STORIES, CHAPTERS]))
@_options(limit=DEFAULT_LIMIT, what="Items")
def ingest_worker(kind: str, **asked: Any) -> None:
    """Take stories or chapters from the queue and write them, until SIGTERM or Ctrl-C.

    What is under way at the end is finished, what was taken and not begun goes back. Every worker also brings back what
    dead ones held, and takes its turn at maintenance. With exit code 75 it wants to be started again, because it has
    grown past --memory-limit.
    """
    _run(Asked(command="ingest-worker", kind=kind, **asked))


@click.command(short_help="Count stories that have changed.")
@click.argument("kind", type=click.Choice([STORIES]))
@_options(limit=RECOUNT_LIMIT, what="Stories")
def recount_worker(kind: str, **asked: Any) -> None:
    """Count chapters, words and ratings of stories that have changed, until SIGTERM or Ctrl-C."""
    _run(Asked(command="recount-worker", kind=RECOUNTS, **asked))


def spread(concurrency: int, available: int) -> list[int]:
    """How many sets each process works at the same time: as many processes as cores, and equal shares."""
    processes = max(1, min(concurrency, available))
    share, rest = divmod(concurrency, processes)
    return [share + (number < rest) for number in range(processes)]


def _run(asked: Asked) -> None:
    settings = load_settings()
    with connection.connect(settings.database) as conn:
        version.require(version.current(conn), place=conn.address.place)
    shares = [asked.loops] if asked.loops else spread(asked.concurrency, cores.available())
    # Who has started us shows our metrics with its own: a child of ours, or one of `novel up`.
    address = None if asked.loops or asked.label else settings.worker.metrics_address
    with on_signals(Stop()) as stop:
        if len(shares) > 1:
            _supervise(settings, asked, shares, stop, address=address)
            return
        if address:
            metrics.show(*address)
        ended = _work(settings, asked, shares[0], stop)
    if ended.wants_to_be_started_again:
        sys.exit(AGAIN_CODE)


def _work(settings: Settings, asked: Asked, loops: int, stop: Stop) -> Ended:
    def on_ready() -> None:
        if asked.loops is None:
            say(f"{_name(asked)} works.")

    garbage.search_seldom()
    try:
        return uvloop.run(process.run(settings, asked.task(loops), stop=stop, on_ready=on_ready))
    except errors.ServerRefused as error:
        raise Problem(f"the database refused: {error.args[-1] if error.args else error}") from error


def _supervise(
    settings: Settings, asked: Asked, shares: list[int], stop: Stop, *, address: tuple[str, int] | None
) -> None:
    """Several processes; whichever dies is started again."""
    supervisor = Supervisor(stop)
    ends_at = None if asked.max_runtime is None else time.monotonic() + asked.max_runtime
    with metrics.shared():
        if address:
            metrics.show(*address)
        try:
            for number, loops in enumerate(shares, 1):
                supervisor.add(partial(_child, settings, asked, loops, number=number, ends_at=ends_at))
            say(f"{_name(asked)} works with {len(shares)} processes.")
            supervisor.run()
        finally:
            supervisor.stop_all(at_once=True)


def _child(settings: Settings, asked: Asked, loops: int, *, number: int, ends_at: float | None) -> Command:
    kind = STORIES if asked.kind == RECOUNTS else asked.kind
    options = ["--loops", str(loops), "--limit", str(asked.limit)]
    if ends_at is not None:
        options += ["--max-runtime", f"{max(0.1, ends_at - time.monotonic()):.1f}"]
    if asked.memory_limit is not None:
        options += ["--memory-limit", str(asked.memory_limit)]
    if asked.drain:
        options.append("--drain")
    return Command(
        name=f"{asked.command}-{kind}-{number}",
        # -P: the folder we are in may have packages of the same names, which are none of ours.
        argv=(sys.executable, "-P", "-m", "cli", asked.command, kind, *options),
        stop_seconds=stop_seconds(settings),
        # One that has an end of its own ends well; any other was told to by somebody else, and is missed.
        done_codes=frozenset({0} if asked.drain or ends_at is not None else ()),
        again_codes=frozenset({AGAIN_CODE}),
    )


def command(name: str, arguments: Sequence[str], *, settings: Settings, label: str) -> Command:
    """A worker that `novel up` starts and looks after."""
    marker = f"--label={label}"
    return Command(
        name=name,
        argv=(sys.executable, "-P", "-m", "cli", *arguments, marker),
        marker=marker,
        stop_seconds=stop_seconds(settings),
        again_codes=frozenset({AGAIN_CODE}),
    )


def stop_seconds(settings: Settings) -> float:
    """How long a worker may take to end."""
    return math.ceil(settings.worker.stop_seconds + STOP_GRACE_SECONDS)


def _name(asked: Asked) -> str:
    return f"novel {asked.command} {STORIES if asked.kind == RECOUNTS else asked.kind}"
