"""`novel push`: the reference crawler client. Reads JSON Lines, sends signed batches, follows them to their end."""

import asyncio
import contextlib
import json
import os
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import httpx

from cli.console import say
from cli.pushing import following, items, lightnovel_crawler, rehearsal
from cli.pushing.batches import batches
from cli.pushing.client import Client, Credentials
from cli.pushing.items import CHAPTERS, STORIES, Item, Rejection
from cli.pushing.lines import STANDARD_INPUT, Input, JsonLines
from cli.pushing.report import Report
from cli.pushing.sender import Sender
from runtime import options, progress
from runtime.problems import Problem

DEFAULT_URL = "http://127.0.0.1:8080"
KEY_ID_VARIABLE = "NOVEL_PUSH_KEY_ID"
SECRET_VARIABLE = "NOVEL_PUSH_SECRET"  # noqa: S105
SECRET_FILE_VARIABLE = "NOVEL_PUSH_SECRET_FILE"  # noqa: S105


_VISIBLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Plan:
    """What the options ask for."""

    url: str
    source: str | None
    concurrency: int
    attempts: int
    wait_seconds: float
    again: bool


@click.command(short_help="Push stories and chapters to a service.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, allow_dash=True))
@click.option(
    "--url",
    envvar="NOVEL_PUBLIC_URL",
    default=DEFAULT_URL,
    show_default=True,
    help="Address of the service, without /wp-json. Or set NOVEL_PUBLIC_URL.",
)
@click.option("--key-id", envvar=KEY_ID_VARIABLE, help=f"Key to sign with. Or set {KEY_ID_VARIABLE}.")
@click.option(
    "--secret-file",
    envvar=SECRET_FILE_VARIABLE,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"File with the key's secret. Or set {SECRET_FILE_VARIABLE}, or {SECRET_VARIABLE} to the secret itself.",
)
@click.option("--source", help="Source of items that name none; of all items of lightnovel-crawler.")
@click.option(
    "--concurrency", default=2, show_default=True, type=click.IntRange(1, 16), help="Batches under way at a time."
)
@click.option(
    "--attempts", default=8, show_default=True, type=click.IntRange(1, 100), help="How often a batch is tried."
)
@click.option(
    "--wait",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to wait until all is processed, or nothing moves for a minute; 0: do not wait.",
)
@click.option("--again", is_flag=True, help="Push anew what was pushed before, instead of repeating its answer.")
@click.option("--json", "as_json", is_flag=True, help="Print the final report as JSON.")
@click.option("--dry-run", is_flag=True, help="Send nothing: check every item, and show the batches.")
def push(
    files: Sequence[str],
    url: str,
    key_id: str | None,
    secret_file: Path | None,
    source: str | None,
    concurrency: int,
    attempts: int,
    wait: float,
    again: bool,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Push stories and chapters from JSON Lines files, plain, .gz or .zst; `-` is standard input.

    A line with `chapter_no`, `content_raw` or `source_chapter_id` is a chapter, any other a story. A folder, meta.json
    or .json.zip that lightnovel-crawler wrote is imported. Pushing a file again within 72 hours takes nothing twice.
    Exit code 1 if an item was rejected or failed. docs/ingest.md has the fields.
    """
    if source is not None and not source.isprintable():  # nor the bytes of a command line that are no text
        raise click.BadParameter("it has characters that no text has.", param_hint="--source")
    plan = Plan(_address(url), source, concurrency, attempts, wait, again)
    credentials = None if dry_run else _credentials(key_id, secret_file)
    report = Report(_complain)
    try:
        with contextlib.ExitStack() as stack:
            inputs = list(_inputs(files, stack, source=source))
            _survey(inputs, plan, report)
            if credentials is None:
                for line in rehearsal.rehearse(inputs, report, source=source):
                    click.echo(line, err=as_json)
            else:
                asyncio.run(_push(inputs, credentials, plan, report))
    except Problem as problem:
        report.problem = str(problem)
        raise
    finally:
        _conclude(report, as_json=as_json, dry_run=dry_run)
    if not report.went_well and not (dry_run and not report.rejected):
        sys.exit(1)


def _inputs(files: Sequence[str], stack: contextlib.ExitStack, *, source: str | None) -> Iterator[Input]:
    for name in files:
        if name != STANDARD_INPUT and lightnovel_crawler.is_output(name):
            yield from lightnovel_crawler.inputs(name, stack, source=source)
        else:
            yield JsonLines(name, stack)


def _survey(inputs: Sequence[Input], plan: Plan, report: Report) -> None:
    """Look at all of it once, so that bad lines are known before anything is sent, and progress has an end."""
    for found in items.read(inputs, source=plan.source):
        if isinstance(found, Item):
            report.expected[found.route.name] += 1
        elif isinstance(found, Rejection):
            report.reject(found)
            report.unreadable += found.count
        else:
            report.skipped += 1


async def _push(inputs: Sequence[Input], credentials: Credentials, plan: Plan, report: Report) -> None:
    client = Client(plan.url, credentials, attempts=plan.attempts, notice=_complain)
    sender = Sender(client, report, plan.concurrency, salt=secrets.token_hex(16) if plan.again else "")
    try:
        for route in (STORIES, CHAPTERS):  # a chapter may only come after its story
            if total := report.expected[route.name]:
                with progress.bar(f"Pushing {route.name}", total=total) as step:
                    await sender.send(batches(items.of_route(inputs, route, source=plan.source)), step)
        if plan.wait_seconds and sender.accepted:
            with progress.bar("Processing", total=report.accepted.total()) as step:
                await following.follow(client, sender.accepted, report, wait_seconds=plan.wait_seconds, step=step)
    finally:
        await client.close()


def _conclude(report: Report, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        say(json.dumps(report.as_json(), ensure_ascii=False, indent=2))
    else:
        for line in report.rehearsed_lines() if dry_run else report.lines():
            say(line)


def _address(url: str) -> str:
    try:
        address = options.web_address(url)
        port = httpx.URL(address).port
        if port is not None and not 1 <= port <= 65535:
            raise ValueError("must have a port from 1 to 65535")
    except (ValueError, httpx.InvalidURL) as error:
        raise click.BadParameter(f"{error}, not {url!r}.", param_hint="--url") from None
    return address


def _credentials(key_id: str | None, secret_file: Path | None) -> Credentials:
    secret = os.environ.get(SECRET_VARIABLE, "")
    if secret_file:
        secret = secret_file.read_bytes().decode("ascii", errors="replace")
    key_id, secret = (key_id or "").strip(), secret.strip()
    if not key_id or not secret:
        missing = "secret" if key_id else "key id"
        raise Problem(
            f"there is no {missing} to sign with: set {KEY_ID_VARIABLE} and {SECRET_VARIABLE},"
            " or use --key-id and --secret-file. `novel keys create` makes a key."
        )
    for name, text in (("key id", key_id), ("secret", secret)):
        if not _VISIBLE.fullmatch(text):
            raise Problem(
                f"that is no {name} of a key: it has other characters than letters, digits and signs of ASCII."
            )
    return Credentials(key_id, secret)


def _complain(text: str) -> None:
    """On stderr as it is now: beside a progress bar it is one that keeps lines apart from the bar, unlike click's."""
    sys.stderr.write(f"novel: {text}\n")
