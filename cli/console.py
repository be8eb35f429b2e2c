"""What the command line says, and how: plain words on stdout, problems in one line on stderr."""

import os

import click

from runtime import logs, settings
from runtime.settings import Settings


def load_settings(*, log_level: str | None = None) -> Settings:
    """Read the settings and set up logs; warn of variables that look like ours but are not."""
    loaded = settings.load(os.environ)
    logs.configure(format=loaded.logs.format, level=log_level or loaded.logs.level)
    for name in loaded.unknown:
        click.echo(f"novel: warning: unknown variable {name}", err=True)
    return loaded


def say(text: str = "") -> None:
    click.echo(text)


def mark(text: str, colour: str) -> str:
    """Colour on a terminal only: click strips it elsewhere."""
    return click.style(text, fg=colour)
