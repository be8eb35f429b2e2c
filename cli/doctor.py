"""`novel doctor`: is everything the service stands on in order?"""

import sys

import click

from cli.console import load_settings, mark, say
from store import doctor as examination
from store.doctor import Verdict

_MARKS = {
    Verdict.GOOD: ("ok  ", "green"),
    Verdict.DOUBTFUL: ("warn", "yellow"),
    Verdict.BROKEN: ("FAIL", "red"),
}


@click.command()
def doctor() -> None:
    """Check servers, settings and schema. Exit code 1 if something is broken."""
    settings = load_settings()
    verdicts = []
    for finding in examination.examine(settings):
        word, colour = _MARKS[finding.verdict]
        say(f"{mark(word, colour)}  {finding.subject:<20} {finding.text}")
        verdicts.append(finding.verdict)
    if Verdict.BROKEN in verdicts:
        sys.exit(1)
