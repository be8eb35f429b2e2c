"""`make chaos`: kill and stop workers while crawlers push. Exit code 1 if anything is lost, doubled or wrong."""

import os
import secrets

import click

from loadtests import command
from loadtests.chaos import run, stage
from loadtests.chaos.run import Plan
from loadtests.chaos.stage import Rules


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--items", type=click.IntRange(100, 10_000_000), default=run.ITEMS, show_default=True)
@click.option(
    "--strikes",
    type=click.IntRange(0, 100_000),
    default=run.STRIKES,
    show_default=True,
    help="How often a worker is killed or stopped.",
)
@click.option("--seed", type=int, help="The same seed makes the same input and the same strikes.  [another each time]")
@click.option("--lease-seconds", type=click.FloatRange(1, 60), default=stage.LEASE_SECONDS, show_default=True)
@click.option(
    "--max-crashes",
    type=click.IntRange(1, 1000),
    default=stage.MAX_CRASHES,
    show_default=True,
    help="Kills over one item after which it is a dead letter, which is then replayed.",
)
def chaos(items: int, strikes: int, seed: int | None, lease_seconds: float, max_crashes: int) -> int:
    """Push a feed full of updates, duplicates and deletions while workers die, and compare what came of it."""
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    rules = Rules(lease_seconds=lease_seconds, max_crashes=max_crashes)
    click.echo(f"Seed {seed}. The logs are in {stage.DIRECTORY}.")
    report = run.run(os.environ, Plan(seed=seed, items=items, strikes=strikes, rules=rules))
    run.tell(report, click.echo)
    return 1 if report.differences else 0


if __name__ == "__main__":
    command.run(chaos, name="chaos")
