"""`novel queue status`, `replay-dead-letter`, `recount-story`: what operators see of the queue, and what they mend."""

import asyncio
import contextlib
import json
import math
import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import click

from cli import keys, queue_view
from cli.console import load_settings, say
from cli.queue_view import counted, job_type_name, table
from runtime import progress
from runtime.problems import Problem
from runtime.settings import Settings
from runtime.shutdown import Stop, on_signals
from schema import connection, version
from schema.connection import Connection, ServerError
from store import dead_letters, errors, payloads, pool, queue_status, replays
from store.dead_letters import Found, Wanted
from store.ingest_jobs import PAYLOAD_DAYS
from store.replays import Run
from store.story_counts import Counts
from worker import recounts

JOB_TYPES = {"stories": payloads.STORIES, "chapters": payloads.CHAPTERS}
MAX_SINCE = timedelta(days=3650)
# Items per second: slower than one in two minutes, the server may hang up between two of them.
MIN_RATE = 0.01
MAX_ERROR_CODE_CHARACTERS = 40
MAX_REQUEST_ID_CHARACTERS = 36
MAX_LOST_LISTED = 10

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(
    r"-?\s*([0-9]{1,9})\s*([smhdw]|(?:sec|second|min|minute|hour|day|week)s?)(?:\s+ago)?", re.IGNORECASE | re.ASCII
)


# -- what may be typed ----------------------------------------------------------------------------------


def _checked(check: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A rule as click wants it: what breaks it is an error of usage, in one line."""

    def callback(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def since_form(text: str) -> timedelta | datetime:
    """How long ago, or when, in UTC: `-24 hours`, `2 days`, `90m`, `2026-07-31`, `2026-07-31T10:00:00+07:00`."""
    wrong = ValueError(f"{text!r} is no time. Say how long ago (-24 hours, 2 days) or when (2026-07-31T10:00:00Z).")
    if age := _AGE.fullmatch(text.strip()):
        unit = timedelta(**{_UNITS[age[2][0].lower()]: 1})
        if int(age[1]) > MAX_SINCE / unit:
            raise ValueError(f"{text!r} is too long ago: at most {MAX_SINCE.days} days.")
        return int(age[1]) * unit
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError):
        raise wrong from None
    return moment


def rate_form(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not MIN_RATE <= rate < math.inf:
        raise ValueError(
            f"{text!r} is no rate. Give items per second, at least {MIN_RATE}, or leave it out for as fast as it goes."
        )
    return rate


def source_form(text: str) -> str:
    names = keys.source_names([text])
    assert names is not None
    return names[0]


def _plain(max_characters: int, what: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        text = unicodedata.normalize("NFC", text)
        if not text.isprintable() or not 1 <= len(text) <= max_characters:
            raise ValueError(f"{text!r} is no {what}: it has 1 to {max_characters} characters.")
        return text

    return check


_json = click.option("--json", "as_json", is_flag=True, help="Say it as JSON, for programs.")


# -- queue status ---------------------------------------------------------------------------------------


@click.group(short_help="See how the queue stands.")
def queue() -> None:
    """See how the queue stands: does it keep up, is anything stuck, what failed?"""


@queue.command(short_help="What waits, what is under way, what failed, who works.")
@_json
def status(as_json: bool) -> None:
    """Show what waits, what is being processed, what failed, and which workers are there.

    Above the figures stand three answers: whether what is due is taken within five minutes; what will not go on by
    itself; how much failed. Of dead letters and failed items the newest 10000 each are counted.
    """
    settings = load_settings()
    lease_seconds = settings.worker.lease_seconds
    with _database(settings) as conn:
        found = queue_status.read(conn)
    if as_json:
        _say_json(queue_view.as_json(found, lease_seconds=lease_seconds))
    else:
        say(queue_view.as_text(found, lease_seconds=lease_seconds))


# -- replay-dead-letter ---------------------------------------------------------------------------------


@click.command(short_help="Queue again what has given up.")
@click.option("--job-type", type=click.Choice(list(JOB_TYPES)), help="Only these. [default: both]")
@click.option(
    "--since",
    callback=_checked(since_form),
    help='Only what died since: "-24 hours", "2 days", or a time such as 2026-07-31T10:00:00Z, in UTC unless it says'
    " otherwise.",
)
@click.option("--source", callback=_checked(source_form), help="Only items of this source.")
@click.option(
    "--error-code",
    callback=_checked(_plain(MAX_ERROR_CODE_CHARACTERS, "error code")),
    help="Only items with this error code, and then also those that failed with it at once.",
)
@click.option(
    "--request-id",
    callback=_checked(_plain(MAX_REQUEST_ID_CHARACTERS, "request id")),
    help="Only items of this request.",
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, those first that died first.")
@click.option(
    "--rate",
    callback=_checked(rate_form),
    metavar="NUMBER",
    help="Items per second, so that workers keep up. [default: as fast as it goes]",
)
@click.option("--dry-run", is_flag=True, help="Only count what matches, by error code and source. Nothing changes.")
@_json
def replay_dead_letter(
    job_type: str | None,
    since: timedelta | datetime | None,
    source: str | None,
    error_code: str | None,
    request_id: str | None,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Queue again what has given up: items whose attempts were all used.

    Nothing newer is ever overwritten: a worker compares each item's updated_at_source with what is stored, and an older
    one changes nothing. Ctrl-C stops between two pieces; the same command then goes on with the rest. Two at once share
    the work. Each run is in the journal (wp_novel_sync_logs), with your login name.
    """
    settings = load_settings()
    with _database(settings) as conn:
        now = dead_letters.now(conn)
        wanted = Wanted(
            until=now,
            since=_moment(since, now=now),
            job_type=JOB_TYPES[job_type] if job_type else None,
            source=source,
            error_code=error_code,
            request_id=request_id,
        )
        found = dead_letters.find(conn, wanted, limit=limit)
        if dry_run:
            _say_found(wanted, found, as_json=as_json)
            return
        with on_signals(Stop()) as stop:
            run = _replay(conn, wanted, found, rate=rate, stop=stop)
    _say_run(run, found, as_json=as_json)
    if run.left:
        raise click.Abort


def _moment(since: timedelta | datetime | None, *, now: datetime) -> datetime | None:
    moment = now - since if isinstance(since, timedelta) else since
    if moment is not None and moment > now:
        raise click.BadParameter(f"{_iso(moment)} is in the future.", param_hint="'--since'")
    return moment


def _replay(conn: Connection, wanted: Wanted, found: Found, *, rate: float | None, stop: Stop) -> Run:
    run = replays.begin(conn, wanted, found, operator=keys.person_at_the_keyboard())
    size = piece_jobs(rate)
    started = time.monotonic()
    try:
        with _progress(len(found.job_ids)) as step:
            for first in range(0, len(found.job_ids), size):
                if stop.wait(pause_seconds(first, rate=rate, elapsed_seconds=time.monotonic() - started)):
                    break
                piece = found.job_ids[first : first + size]
                run = replays.queue(conn, run, piece, wait=stop.wait)
                step(len(piece))
        replays.end(conn, run, stopped=run.left > 0)
    except ServerError:
        click.echo(
            f"novel: {counted(run.queued, 'item')} queued again before this. The same command goes on with the rest.",
            err=True,
        )
        raise
    return run


def _progress(total: int) -> contextlib.AbstractContextManager[progress.Step]:
    return progress.bar("Queueing again", total=total) if total else contextlib.nullcontext(lambda _: None)


def piece_jobs(rate: float | None) -> int:
    """Jobs of a piece: as many as a second allows."""
    return replays.PIECE_JOBS if rate is None else max(1, min(replays.PIECE_JOBS, int(rate)))


def pause_seconds(done: int, *, rate: float | None, elapsed_seconds: float) -> float:
    """How long to wait, after so many items in so long a time, so that they are not more than the rate allows."""
    return 0.0 if rate is None else max(0.0, done / rate - elapsed_seconds)


def _say_found(wanted: Wanted, found: Found, *, as_json: bool) -> None:
    lost = found.lost_groups
    groups = sorted(set(found.groups) | set(lost), key=lambda group: (group.error_code or "", group.source, str(group)))
    if as_json:
        _say_json(
            {
                "dry_run": True,
                "filters": wanted.filters,
                "matched": len(found.job_ids) + lost.total(),
                "can_be_queued": len(found.job_ids),
                "payload_gone": lost.total(),
                "payload_gone_items": [asdict(item) for item in found.lost],
                "groups": [
                    asdict(group) | {"can_be_queued": found.groups[group], "payload_gone": lost[group]}
                    for group in groups
                ],
            }
        )
        return
    if not groups:
        _say_nothing(wanted)
        return
    headings = ("ERROR CODE", "SOURCE", "JOB TYPE", "STATE", "CAN BE QUEUED", "PAYLOAD GONE")
    rows = [
        (
            *(group.error_code or "none", group.source, job_type_name(group.job_type)),
            *(group.status.replace("_", " "), f"{found.groups[group]:,}", f"{lost[group]:,}"),
        )
        for group in groups
    ]
    say(table(headings, rows))
    say(f"\n{counted(len(found.job_ids), 'item')} can be queued again. Nothing was changed.")
    _say_lost(lost.total(), found)


def _say_run(run: Run, found: Found, *, as_json: bool) -> None:
    if as_json:
        _say_json(
            {
                "dry_run": False,
                "filters": run.wanted.filters,
                "matched": run.matched,
                "queued": run.queued,
                "units": run.units,
                "payload_gone": run.payload_gone,
                "payload_gone_items": [asdict(item) for item in found.lost],
                "taken": run.taken,
                "stopped": run.left > 0,
            }
        )
        return
    if not run.matched:
        _say_nothing(run.wanted)
        return
    say(f"{counted(run.queued, 'item')} queued again. See how they get on with: novel queue status")
    if run.taken:
        say(f"{counted(run.taken, 'item')} left out: somebody else queued or purged them meanwhile, or holds them.")
    _say_lost(run.payload_gone, found)
    if run.left:
        say(f"{counted(run.left, 'item')} not reached. The same command goes on with them.")


def _say_nothing(wanted: Wanted) -> None:
    asked = [f"--{name.replace('_', '-')}" for name, value in wanted.filters.items() if value is not None]
    say(f"Nothing matches {', '.join(asked)}." if asked else "Nothing matches: there are no dead letters.")


def _say_lost(count: int, found: Found) -> None:
    if not count:
        return
    say(
        f"{counted(count, 'item')} cannot be queued again: the payload is gone (it is kept for {PAYLOAD_DAYS} days)."
        " Push again from the crawler:"
    )
    for item in found.lost[:MAX_LOST_LISTED]:
        say(f"  {job_type_name(item.job_type)} {item.source} {item.external_ref} (request {item.request_id})")
    if count > MAX_LOST_LISTED and found.lost:
        say(f"  and {count - MAX_LOST_LISTED:,} more; --json lists up to {dead_letters.MAX_LOST_SHOWN}.")


# -- recount-story --------------------------------------------------------------------------------------


@click.command(short_help="Count a story's chapters and ratings now.")
@click.option(
    "--story-id", required=True, type=click.IntRange(1, 2**63 - 1), help="The story's id, as in the database."
)
@_json
def recount_story(story_id: int, as_json: bool) -> None:
    """Compute a story's counts anew and at once: chapters, words, last chapter, ratings, popularity."""
    settings = load_settings()
    with _database(settings):
        pass  # is it there, and of this version? It says so better than a pool does
    try:
        counts = asyncio.run(_recount(settings, story_id))
    except (errors.StoreError, errors.ServerRefused) as error:
        raise Problem(f"story {story_id} could not be counted: {error}. Try again.") from error
    if counts is None:
        raise Problem(f"there is no story {story_id}.")
    figures = {
        "chapter_count": counts.chapter_count,
        "word_count": counts.word_count,
        "last_chapter_no": counts.last_chapter_no,
        "rating_avg": counts.rating_avg,
        "rating_count": counts.rating_count,
        "popularity_score": counts.popularity_score,
    }
    if as_json:
        _say_json({"story_id": story_id} | figures)
        return
    say(f"Story {story_id}")
    for name, value in figures.items():
        say(f"  {name:<18}{'none' if value is None else value}")


async def _recount(settings: Settings, story_id: int) -> Counts | None:
    connections = pool.from_settings(settings.database)
    try:
        return await recounts.recount_now(connections, story_id)
    finally:
        await connections.close()


# -- shared ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _database(settings: Settings) -> Iterator[Connection]:
    """With the time of a worker's statement: reading through a million failures takes its time."""
    with connection.connect(settings.database, statement_seconds=settings.worker.statement_seconds) as conn:
        version.require(version.current(conn), place=conn.address.place)
        yield conn


def _say_json(value: Any) -> None:
    say(json.dumps(value, indent=2, default=_number))


def _number(value: Decimal) -> float:
    return float(value)


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
