"""`novel maintenance`: what workers do now and then, done now."""

import asyncio
import sys
from dataclasses import dataclass

import click

from cli.console import load_settings, mark, say
from cli.keys import person_at_the_keyboard
from cli.queue_view import counted, span, table
from runtime.problems import Problem
from runtime.settings import Settings
from runtime.shutdown import Stop, on_signals
from schema import connection, journal, version
from store import errors, pool
from store.redis_link import RedisLink
from worker.maintenance import Maintenance, Report
from worker.rescuing import Rescuer

HOLDER = "novel maintenance"


@dataclass(slots=True)
class Done:
    rescued_units: int
    report: Report


@click.command(short_help="Purge, roll up and rescue now.")
def maintenance() -> None:
    """Bring back what dead workers held, and do every task of maintenance now, whether it is due or not.

    Workers do this by themselves; this is for a system without workers, and for whoever does not want to wait. It ends
    when everything is done. Exit code 1 if a task failed.
    """
    settings = load_settings()
    with connection.connect(settings.database) as conn:
        version.require(version.current(conn), place=conn.address.place)
    with on_signals(Stop()) as stop:
        try:
            done = asyncio.run(_maintain(settings, stop))
        except (errors.StoreError, errors.ServerRefused) as error:
            raise Problem(f"maintenance could not be done: {error}. Try again.") from error
    rows = {task: result.rows for task, result in done.report.done.items()}
    # A new one: it may have taken so long that the server has hung up on the first.
    with connection.connect(settings.database) as conn:
        journal.append(
            conn,
            "maintenance.run",
            f"Maintenance was run by {person_at_the_keyboard()}.",
            context={"rows": rows, "failed": done.report.failed, "rescued_units": done.rescued_units},
        )
    _say(done)
    if stop.requested:
        raise click.Abort
    if done.report.failed:
        sys.exit(1)


async def _maintain(settings: Settings, stop: Stop) -> Done:
    connections, redis = pool.from_settings(settings.database), RedisLink(settings.redis)
    try:
        # Nobody who is silent now was kept from beating by an outage that we know of.
        rescued = await Rescuer(connections, settings=settings, is_steady=lambda: True).look()
        upkeep = Maintenance(connections, redis, holder=HOLDER, settings=settings, is_stopping=lambda: stop.requested)
        report = Report()
        unfinished = set(upkeep.names)
        while unfinished and not stop.requested:
            some = await upkeep.do(unfinished)
            report.add(some)
            unfinished = {name for name, result in some.done.items() if result.goes_on}
        return Done(rescued, report)
    finally:
        await connections.close()
        await redis.close()


def _say(done: Done) -> None:
    report = done.report
    if done.rescued_units:
        say(f"Brought back {counted(done.rescued_units, 'unit')} that dead workers held.")
    rows = [(task, f"{result.rows:,}", span(result.lag_seconds)) for task, result in report.done.items()]
    if rows:
        say(table(("TASK", "ROWS", "LAG"), rows))
    for task, holder in report.held.items():
        say(f"{task} was left out: {holder} is at it.")
    for task, error in report.failed.items():
        say(mark(f"{task} failed: {error}", "red"))
