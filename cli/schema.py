"""`novel migrate` and `novel schema status|check|drop`."""

import sys

import click

from cli.console import load_settings, say
from runtime import progress
from runtime.problems import Problem
from schema import connection, drift, drop, migrations, migrator, version


@click.command()
def migrate() -> None:
    """Bring the database to the newest schema. Safe to run at any time, also twice."""
    # The bar shows what is done and a failure ends the command with its one line: the log would say both again.
    settings = load_settings(log_level="critical").database
    with connection.connect(settings, statement_seconds=0) as conn:
        todo = migrator.pending(conn)
        if not todo:
            say(f"{conn.address.place} is at schema version {version.current(conn)}: nothing to do.")
            return
        with progress.bar("Migrations", total=len(todo)) as step:
            applied = migrator.migrate(
                conn,
                lock_seconds=settings.migration_lock_seconds,
                on_applied=lambda migration, seconds: step(1),
            )
        names = ", ".join(migration.name for migration in applied) or "nothing: another migration did it meanwhile"
        say(f"{conn.address.place} is now at schema version {version.current(conn)} (applied {names}).")


@click.group(short_help="Look at the schema, check it, or drop it.")
def schema() -> None:
    """Look at the schema, compare it with what it should be, or drop it."""


@schema.command()
def status() -> None:
    """Show the version of the database and what is pending."""
    with connection.connect(load_settings().database) as conn:
        there = version.current(conn)
        say(f"{conn.address.place}: schema version {there}, newest {migrations.latest()} ({conn.dialect.name})")
        for migration in migrations.available():
            say(f"  {'applied' if migration.number <= there else 'pending'}  {migration.name}")
    if there < migrations.latest():
        say("Run: novel migrate")


@schema.command(short_help="Name every drift of the database.")
def check() -> None:
    """Name every difference between the database and the declared schema. Silent when there is none."""
    with connection.connect(load_settings().database, statement_seconds=0) as conn:
        there = version.current(conn)
        version.require(there, place=conn.address.place)
        version.require_known(there, place=conn.address.place)
        differences = drift.check(conn)
    for difference in differences:
        say(difference)
    if differences:
        sys.exit(1)


@schema.command(name="drop", short_help="Delete every table of ours, after asking.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop_command(yes: bool) -> None:
    """Delete every table of ours, with all stories, chapters and readers' data. WordPress's tables stay."""
    settings = load_settings().database
    with connection.connect(settings, statement_seconds=0) as conn:
        tables = drop.tables(conn)
        if not tables:
            say(f"There are no {conn.table('wp_novel_')}* tables in {conn.address.place}.")
            return
        say(f"This deletes {len(tables)} tables from {conn.address.place}, with everything in them:")
        for table in tables:
            say(f"  {table}")
        if not yes:
            _confirm(conn.address.database)
        say(f"Dropped {len(drop.drop(conn, lock_seconds=settings.migration_lock_seconds))} tables.")


def _confirm(database: str) -> None:
    if not sys.stdin.isatty():
        raise Problem("dropping needs a confirmation: run it on a terminal, or add --yes.")
    if click.prompt(f"Type the name of the database ({database}) to go on", default="", show_default=False) != database:
        raise Problem("that is not the name of the database: nothing was dropped.")
