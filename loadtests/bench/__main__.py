"""`make bench`: measure every case beside its bare counterpart. Exit code 1 if a target is missed."""

import asyncio
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import uvloop

from loadtests import command, place
from loadtests.bench import measuring, registry, report
from loadtests.bench.case import AnyCase, Bench
from loadtests.bench.measuring import Pace
from loadtests.bench.result import MISSED, AnyResult
from loadtests.catalogue import filling
from runtime import progress
from schema.connection import connect

RESULT = place.DIRECTORY / "result.json"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@command.with_sizes
@click.option("--only", multiple=True, metavar="NAME", help="Run this case or group only; may be repeated.")
@click.option("--rounds", type=click.IntRange(1, 1000), help="Rounds of each comparison.  [7, quick 5]")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), default=RESULT, show_default=True)
@click.option("--list", "list_only", is_flag=True, help="Only say which cases there are.")
def bench(
    quick: bool,
    stories: int | None,
    chapters: int | None,
    bodies: int | None,
    seed: int | None,
    only: tuple[str, ...],
    rounds: int | None,
    json_path: Path,
    list_only: bool,
) -> int:
    """Run each case next to its bare counterpart and compare."""
    cases = registry.chosen(only, quick=quick)
    if list_only:
        for case in cases:
            click.echo(f"{case.name:<40}{case.title}")
        return 0
    sizes = command.sizes(quick=quick, stories=stories, chapters=chapters, bodies=bodies, seed=seed)
    usual = measuring.QUICK if quick else measuring.FULL
    pace = replace(usual, rounds=rounds or usual.rounds)
    with place.opened(os.environ) as settings:
        state = Bench(settings, sizes)
        server = _prepare(state, cases)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the loop that the services run on
            results = runner.run(_measure(cases, state, pace))
    at = datetime.now(UTC).isoformat(timespec="seconds")
    report.write(json_path, report.document(results, state, server=server, at=at, quick=quick))
    report.show(results, report.console())
    click.echo(f"Written to {json_path}.")
    return 1 if any(result.verdict == MISSED for result in results) else 0


def _prepare(state: Bench, cases: list[AnyCase]) -> str:
    """Make schema and data ready; returns the server's version."""
    lock_seconds = state.settings.database.migration_lock_seconds
    with connect(state.settings.database, statement_seconds=0) as conn:
        if any(case.needs_catalogue for case in cases):
            filling.ensure(conn, state.sizes, lock_seconds=lock_seconds)
        else:
            filling.ensure_schema(conn, lock_seconds=lock_seconds)
        return str(conn.raw.get_server_info())


async def _measure(cases: list[AnyCase], state: Bench, pace: Pace) -> list[AnyResult]:
    results = []
    with progress.bar("Samples", total=sum(measuring.steps(case, pace) for case in cases)) as step:
        for case in cases:
            results.append(await measuring.measure_any(case, state, pace, step=step))
    return results


if __name__ == "__main__":
    command.run(bench, name="bench")
