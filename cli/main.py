"""`novel`: the command line."""

import os
import sys

import click

from cli import doctor, keys, maintenance, push, queue, schema, serve, up, workers
from runtime.problems import Problem
from schema.connection import ServerError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="novel-service", prog_name="novel")
def novel() -> None:
    """A platform for serial fiction at scale, sharing its database with WordPress.

    Settings are NOVEL_* environment variables; docs/settings.md lists them all.
    """


novel.add_command(up.up)
novel.add_command(serve.serve)
novel.add_command(schema.migrate)
novel.add_command(schema.schema)
novel.add_command(doctor.doctor)
novel.add_command(push.push)
novel.add_command(keys.keys)
novel.add_command(workers.ingest_worker)
novel.add_command(workers.recount_worker)
novel.add_command(maintenance.maintenance)
novel.add_command(queue.queue)
novel.add_command(queue.replay_dead_letter)
novel.add_command(queue.recount_story)


def main() -> None:
    """Run a command. What a person can mend is one line on stderr, never a traceback."""
    try:
        _run()
    except BrokenPipeError:  # whoever read our output has gone
        _forget_output()
        sys.exit(1)
    except OSError as error:  # a file, folder or disk that the person named or owns
        _forget_output()
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"novel: {place}{error.strerror or error}.", err=True)
        sys.exit(1)


def _run() -> None:
    try:
        novel(standalone_mode=False)
    except Problem as problem:
        click.echo(f"novel: {problem}", err=True)
        sys.exit(problem.exit_code)
    except ServerError as error:
        click.echo(f"novel: the database refused: {error.args[-1] if error.args else error}", err=True)
        sys.exit(1)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("novel: stopped.", err=True)
        sys.exit(130)


def _forget_output() -> None:
    """What could not be written must not be tried again, and complained of, when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
