"""`python -m loadtests.catalogue`: fill the benchmark's database, so that the next run finds it there."""

import os
import time

import click

from loadtests import command, place
from loadtests.catalogue import filling
from schema.connection import connect


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@command.with_sizes
def catalogue(quick: bool, stories: int | None, chapters: int | None, bodies: int | None, seed: int | None) -> None:
    """Generate a catalogue of Vietnamese stories into the benchmark's database, unless it is there already."""
    sizes = command.sizes(quick=quick, stories=stories, chapters=chapters, bodies=bodies, seed=seed)
    with place.opened(os.environ) as settings, connect(settings.database, statement_seconds=0) as conn:
        started = time.monotonic()
        generated = filling.ensure(conn, sizes, lock_seconds=settings.database.migration_lock_seconds)
        what = f"{sizes.stories} stories, {sizes.chapters} chapters, {sizes.bodies} texts (seed {sizes.seed})"
        if generated:
            click.echo(f"Generated {what} in {time.monotonic() - started:.1f} s at {conn.address.place}.")
        else:
            click.echo(f"Already there: {what} at {conn.address.place}.")


if __name__ == "__main__":
    command.run(catalogue, name="catalogue")
