"""`novel keys create|list|revoke|rotate|unlock`: the API keys that crawlers sign with."""

import contextlib
import getpass
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.console import load_settings, say
from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, version
from schema.connection import Connection
from store import api_keys
from store.api_keys import PERMISSIONS, KeyRecord, State

DEFAULT_PERMISSIONS = "ingest:stories,ingest:chapters"
MAX_NAME_CHARACTERS = 120
MAX_SOURCE_CHARACTERS = 40
# As many as an entry of the journal holds beside the operator, however they are written.
MAX_SOURCES = 64
MAX_KEY_ID_CHARACTERS = 64
MAX_OVERLAP_HOURS = 8760
# Wide enough for any row: what is piped is read line by line.
PIPED_WIDTH = 10_000


# -- what may be typed ----------------------------------------------------------------------------------


def _checked(check: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A rule as click wants it: what breaks it is an error of usage, in one line."""

    def callback(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def label(text: str) -> str:
    """A name of a key or of a person, in the one spelling that is stored."""
    text = unicodedata.normalize("NFC", text)
    if not _fits_on_a_line(text, MAX_NAME_CHARACTERS):
        raise ValueError(
            f"{text!r} must have 1 to {MAX_NAME_CHARACTERS} characters, no control characters, and no space around it."
        )
    return text


def source_names(texts: Sequence[str]) -> tuple[str, ...] | None:
    """The sources a key may push, each once; None for any."""
    names = tuple(dict.fromkeys(unicodedata.normalize("NFC", text) for text in texts))
    for name in names:
        if not _fits_on_a_line(name, MAX_SOURCE_CHARACTERS) or "/" in name or name in (".", ".."):
            raise ValueError(
                f"{name!r} must have 1 to {MAX_SOURCE_CHARACTERS} characters, no slash, no control characters,"
                " and no space around it, and must not be . or .."
            )
    if len(names) > MAX_SOURCES:
        raise ValueError(f"a key takes at most {MAX_SOURCES} sources. Leave --source out to allow any.")
    return names or None


def permission_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Permissions, given one by one or separated by commas; each once, in the order of the specification."""
    names = {name.strip() for text in texts for name in text.split(",")}
    for name in sorted(names.difference(PERMISSIONS)):
        raise ValueError(f"{name!r} is no permission. Choose from: {', '.join(PERMISSIONS)}.")
    return tuple(name for name in PERMISSIONS if name in names)


def key_id_form(text: str) -> str:
    if not text.isprintable() or not 1 <= len(text) <= MAX_KEY_ID_CHARACTERS:
        raise ValueError(f"{text!r} is no key id. See which there are with: novel keys list --all")
    return text


def _fits_on_a_line(text: str, max_characters: int) -> bool:
    """Bytes of a command line that are no text come as surrogates (Cs)."""
    is_plain = all(unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") for character in text)
    return 1 <= len(text) <= max_characters and text == text.strip() and is_plain


def person_at_the_keyboard() -> str:
    """Also behind sudo; in a container, the user may have no name."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


_key_id = click.argument("key_id", callback=_checked(key_id_form))
_json = click.option("--json", "as_json", is_flag=True, help="Say it as JSON, for programs.")
_operator = click.option(
    "--operator",
    default=person_at_the_keyboard,
    callback=_checked(label),
    help="Who does this, for the journal. [default: your login name]",
)


# -- the commands ---------------------------------------------------------------------------------------


@click.group(short_help="Make, list, rotate and end API keys.")
def keys() -> None:
    """Make, list, rotate and end the API keys that crawlers sign with."""


@keys.command()
@click.option("--name", required=True, callback=_checked(label), help="What the key is for, as you will see it listed.")
@click.option(
    "--permissions",
    multiple=True,
    default=[DEFAULT_PERMISSIONS],
    callback=_checked(permission_names),
    help=f"What it may do: {', '.join(PERMISSIONS)}, with commas or repeated. [default: {DEFAULT_PERMISSIONS}]",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    callback=_checked(source_names),
    help="A source it may push; repeat it for more. [default: any source]",
)
@_operator
@_json
def create(
    name: str, permissions: tuple[str, ...], sources: tuple[str, ...] | None, operator: str, as_json: bool
) -> None:
    """Make a key and show its secret, this once."""
    settings = load_settings()
    master_key = _master_key(settings)
    with _database(settings) as conn:
        key_id, secret = api_keys.create(
            conn, name=name, permissions=permissions, sources=sources, master_key=master_key, operator=operator
        )
    if as_json:
        _say_json({"key_id": key_id, "secret": secret, "name": name, "permissions": permissions, "sources": sources})
    else:
        _say_secret(key_id, secret)


@keys.command(name="list", short_help="List keys with scope, state and last use.")
@click.option("--all", "with_past", is_flag=True, help="Also keys that are revoked or expired.")
@_json
def list_command(with_past: bool, as_json: bool) -> None:
    """List keys: what they may do, whether they are valid, and when they were last used. Times are UTC."""
    with _database(load_settings()) as conn:
        records = [key for key in api_keys.every(conn) if with_past or not key.state.is_over]
    if as_json:
        _say_json([_described(key) for key in records])
    elif records:
        say(_table(records))
    else:
        there_are = "There are no API keys" if with_past else "There are no valid API keys"
        say(f"{there_are}. Make one with: novel keys create --name NAME")


@keys.command()
@_key_id
@_operator
@_json
def revoke(key_id: str, operator: str, as_json: bool) -> None:
    """End a key at once, for good."""
    with _database(load_settings()) as conn:
        key = api_keys.revoke(conn, key_id, operator=operator)
    was_valid = key.state is not State.REVOKED
    if as_json:
        _say_json({"key_id": key_id, "state": State.REVOKED, "changed": was_valid})
    elif was_valid:
        say(f"Revoked API key {key_id} ({key.name}).")
    else:
        when = f" at {_shown(key.revoked_at)} UTC" if key.revoked_at else ""
        say(f"API key {key_id} ({key.name}) was revoked already{when}: nothing to do.")


@keys.command(short_help="Issue the next version of a key.")
@_key_id
@click.option(
    "--overlap-hours",
    type=click.IntRange(0, MAX_OVERLAP_HOURS),
    default=24,
    show_default=True,
    help="How long the old key stays valid beside the new one; 0 ends it at once.",
)
@_operator
@_json
def rotate(key_id: str, overlap_hours: int, operator: str, as_json: bool) -> None:
    """Issue the next version of a key, with the same name and scope, and show its secret, this once."""
    settings = load_settings()
    master_key = _master_key(settings)
    with _database(settings) as conn:
        made = api_keys.rotate(conn, key_id, overlap_hours=overlap_hours, master_key=master_key, operator=operator)
    old = made.replaced
    if as_json:
        _say_json(
            {
                "key_id": made.key_id,
                "secret": made.secret,
                "name": old.name,
                "permissions": old.permissions,
                "sources": old.sources,
                "replaces": {"key_id": key_id, "expires_at": _iso(old.expires_at)},
            }
        )
    else:
        _say_secret(made.key_id, made.secret)
        say(
            f"{key_id} is valid until {_shown(old.expires_at)} UTC."
            if overlap_hours
            else f"{key_id} is no longer valid."
        )


@keys.command(short_help="Let a locked key in again.")
@_key_id
@_operator
@_json
def unlock(key_id: str, operator: str, as_json: bool) -> None:
    """Let a key in again that was locked after too many wrong signatures."""
    with _database(load_settings()) as conn:
        key = api_keys.unlock(conn, key_id, operator=operator)
    was_locked = key.state is State.LOCKED
    if as_json:
        _say_json({"key_id": key_id, "state": State.ACTIVE, "changed": was_locked})
    elif was_locked:
        say(f"Unlocked API key {key_id} ({key.name}).")
    else:
        say(f"API key {key_id} ({key.name}) is not locked: nothing to do.")


@contextlib.contextmanager
def _database(settings: Settings) -> Iterator[Connection]:
    with connection.connect(settings.database) as conn:
        version.require(version.current(conn), place=conn.address.place)
        yield conn


def _master_key(settings: Settings) -> str:
    if settings.secrets.master_key is None:
        raise Problem(
            "NOVEL_MASTER_KEY is not set, and every secret is derived from it. Set it to the one that the service runs"
            " with; for a new service, make one with: openssl rand -base64 48"
        )
    return settings.secrets.master_key


# -- how it is said -------------------------------------------------------------------------------------


def _say_json(value: Any) -> None:
    say(json.dumps(value, indent=2))


def _say_secret(key_id: str, secret: str) -> None:
    say(f"Key id  {key_id}")
    say(f"Secret  {secret}")
    say("The secret is not stored and cannot be shown again: keep it in a safe place now.")


def _described(key: KeyRecord) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "name": key.name,
        "permissions": key.permissions,
        "sources": key.sources,
        "state": key.state,
        "expires_at": _iso(key.expires_at),
        "locked_until": _iso(key.locked_until),
        "revoked_at": _iso(key.revoked_at),
        "created_at": _iso(key.created_at),
        "last_used_at": _iso(key.last_used_at),
    }


def _table(records: Sequence[KeyRecord]) -> str:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("KEY ID", "NAME", "PERMISSIONS", "SOURCES", "STATE", "CREATED", "LAST USED"):
        table.add_column(heading, no_wrap=heading == "KEY ID")
    for key in records:
        cells = (
            key.key_id,
            key.name,
            ", ".join(key.permissions),
            "any" if key.sources is None else ", ".join(key.sources) or "none",
            _state(key),
            _shown(key.created_at),
            _shown(key.last_used_at) if key.last_used_at else "never",
        )
        table.add_row(*map(Text, cells))  # as Text, because [brackets] in a name are no markup
    console = Console(file=sys.stdout) if sys.stdout.isatty() else Console(file=sys.stdout, width=PIPED_WIDTH)
    with console.capture() as shown:
        console.print(table)
    return "\n".join(line.rstrip() for line in shown.get().splitlines())


def _state(key: KeyRecord) -> str:
    match key.state:
        case State.REVOKED:
            return f"revoked {_shown(key.revoked_at)}" if key.revoked_at else "revoked"
        case State.EXPIRED:
            return f"expired {_shown(key.expires_at)}"
        case State.LOCKED:
            word = f"locked until {_shown(key.locked_until)}"
        case State.ACTIVE:
            word = "active"
    return f"{word}, expires at {_shown(key.expires_at)}" if key.expires_at else word


def _shown(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M}" if time else ""


def _iso(time: datetime | None) -> str | None:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}" if time else None
