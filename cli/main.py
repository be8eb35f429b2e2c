"""`novel`: the command line."""

import sys

import click

from cli import doctor, schema, serve, up
from runtime.problems import Problem


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


def main() -> None:
    """Run a command. What a person can mend is one line on stderr, never a traceback."""
    try:
        novel(standalone_mode=False)
    except Problem as problem:
        click.echo(f"novel: {problem}", err=True)
        sys.exit(problem.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("novel: stopped.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
