"""Progress of long work: a bar on a terminal, plain lines now and then elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY_SECONDS = 5.0

Step = Callable[[int], None]


@contextlib.contextmanager
def bar(title: str, *, total: int, stream: TextIO | None = None) -> Iterator[Step]:
    """Show progress while the block runs; call the yielded step with how much more is done."""
    stream = stream or sys.stderr
    if stream.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(file=stream)) as progress:
            task = progress.add_task(title, total=total)
            yield lambda count: progress.advance(task, count)
        return
    yield from _plain(title, total, stream)


def _plain(title: str, total: int, stream: TextIO) -> Iterator[Step]:
    started = last = time.monotonic()
    done = 0

    def say() -> None:
        share = f" ({done * 100 // total} %)" if total else ""
        print(f"{title}: {done} of {total}{share}, {time.monotonic() - started:.1f} s", file=stream, flush=True)

    def step(count: int) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last >= LINE_EVERY_SECONDS and done < total:
            last = time.monotonic()
            say()

    yield step
    say()
