"""What the commands of `loadtests` have in common: options for sizes, and problems told in one line."""

import sys
from collections.abc import Callable
from typing import Any

import click

from loadtests.catalogue.sizes import FULL, QUICK, Sizes
from runtime import logs
from runtime.problems import Problem

CTRL_C = 130

_OPTIONS = (
    click.option("--quick", is_flag=True, help="A small catalogue, and less of everything."),
    click.option("--stories", type=click.IntRange(10, 5_000_000), help=f"Stories to generate.  [{FULL.stories}]"),
    click.option("--chapters", type=click.IntRange(0, 100_000_000), help=f"Chapters to generate.  [{FULL.chapters}]"),
    click.option("--bodies", type=click.IntRange(0, 10_000_000), help=f"Chapters with a text.  [{FULL.bodies}]"),
    click.option("--seed", type=int, help="Another seed gives another catalogue.  [1]"),
)


def with_sizes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how large the catalogue is."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def sizes(*, quick: bool, **asked: int | None) -> Sizes:
    usual = QUICK if quick else FULL
    chosen = {name: getattr(usual, name) if value is None else value for name, value in asked.items()}
    # Only a chapter can have a text.
    return Sizes(**{**chosen, "bodies": min(chosen["bodies"], chosen["chapters"])})


def run(command: click.Command, *, name: str, arguments: list[str] | None = None) -> None:
    """Run a command to its exit code. What a person can mend is one line on stderr, never a traceback."""
    logs.configure(format="human", level="warning")
    try:
        sys.exit(command.main(arguments, prog_name=name, standalone_mode=False) or 0)
    except Problem as problem:
        click.echo(f"{name}: {problem}", err=True)
        sys.exit(problem.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{name}: stopped.", err=True)
        sys.exit(CTRL_C)
