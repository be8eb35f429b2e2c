"""`novel keys`, as an operator or a script runs it."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from cli import keys
from runtime.settings import Settings
from schema import migrations, migrator, version
from schema.connection import Connection
from store import api_keys
from tests.conftest import NovelCommand, clean_environ, novel_executable

TIME = r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}"
WITH_A_KEY_ID = ["revoke", "rotate", "unlock"]

MakeKey = Callable[..., str]


@pytest.fixture
def make_key(conn: Connection, test_settings: Settings) -> MakeKey:
    """Makes a key beside the command line; returns its id."""

    def make(name: str = "crawler", *, sources: tuple[str, ...] = ()) -> str:
        master_key = test_settings.secrets.master_key
        assert master_key is not None
        key_id, _ = api_keys.create(
            conn,
            name=name,
            permissions=("ingest:stories", "ingest:chapters"),
            sources=sources,
            master_key=master_key,
            operator="a test",
        )
        return key_id

    return make


@pytest.fixture
def run(novel: NovelCommand, environ: dict[str, str]) -> Callable[..., str]:
    """What a command that succeeds says."""

    def run(*arguments: str) -> str:
        done = novel("keys", *arguments, **environ)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    return run


Run = Callable[..., str]


def refusal(novel: NovelCommand, environ: dict[str, str], *arguments: str, code: int = 1) -> str:
    """The one line of a command that fails. Above an error of usage click shows the usage."""
    done = novel("keys", *arguments, **environ)
    assert (done.returncode, done.stdout) == (code, ""), done
    lines = done.stderr.splitlines()
    assert len(lines) == (1 if code == 1 else 4)
    return lines[-1]


def operators(conn: Connection, event: str) -> list[Any]:
    rows = conn.fetch_all("SELECT context_json FROM wp_novel_sync_logs WHERE event_type = %s ORDER BY id", (event,))
    return [json.loads(context)["operator"] for (context,) in rows]


def lock(conn: Connection, key_id: str) -> None:
    conn.execute(
        "UPDATE wp_novel_api_key_terms SET locked_until = UTC_TIMESTAMP() + INTERVAL 1 HOUR WHERE key_id = %s",
        (key_id,),
    )


def expire(conn: Connection, key_id: str) -> None:
    conn.execute("UPDATE wp_novel_api_key_terms SET expires_at = UTC_TIMESTAMP() WHERE key_id = %s", (key_id,))


# -- create ---------------------------------------------------------------------------------------------


def test_a_new_key_is_shown_with_its_secret_once(run: Run, conn: Connection, test_settings: Settings) -> None:
    said = re.fullmatch(
        r"Key id  (nk_[0-9a-f]{16}\.1)\nSecret  ([\w-]{43})\n"
        r"The secret is not stored and cannot be shown again: keep it in a safe place now\.\n",
        run("create", "--name", "crawler 1"),
    )
    assert said
    (key,) = api_keys.every(conn)
    assert test_settings.secrets.master_key is not None
    assert (key.key_id, api_keys.check_secret(key, test_settings.secrets.master_key)) == said.groups()
    assert (key.name, key.permissions, key.sources) == ("crawler 1", ("ingest:stories", "ingest:chapters"), None)
    secret = said[2]
    assert secret not in run("list", "--all") + run("list", "--all", "--json")
    assert secret not in repr(conn.fetch_all("SELECT message, context_json FROM wp_novel_sync_logs"))


def test_a_new_key_as_json(run: Run, conn: Connection) -> None:
    arguments = ("--name", "Trạm 1", "--source", "b", "--source", "a", "--source", "b", "--json")
    said = json.loads(run("create", *arguments, "--permissions", "ingest:stats, ingest:stories"))
    secret = said.pop("secret")
    (key,) = api_keys.every(conn)
    assert said == {
        "key_id": key.key_id,
        "name": "Trạm 1",
        "permissions": ["ingest:stories", "ingest:stats"],
        "sources": ["b", "a"],
    }
    assert (list(key.permissions), list(key.sources or ())) == (said["permissions"], said["sources"])
    assert len(secret) == 43


def test_a_new_key_for_any_source_has_none_in_its_json(run: Run) -> None:
    assert json.loads(run("create", "--name", "x", "--json"))["sources"] is None


def test_the_longest_sources_leave_room_for_the_operator_in_the_journal(conn: Connection, make_key: MakeKey) -> None:
    make_key("😀" * 120, sources=tuple(f"{number:02}" + "😀" * 38 for number in range(keys.MAX_SOURCES)))
    assert operators(conn, "api_key.created") == ["a test"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["create"], "Error: Missing option '--name'."),
        (["create", "--name", ""], "Error: Invalid value for '--name': '' must have 1 to 120 characters"),
        (
            ["create", "--name", "x", "--permissions", "ingest:storys"],
            "Error: Invalid value for '--permissions': 'ingest:storys' is no permission."
            " Choose from: ingest:stories, ingest:chapters, ingest:stats.",
        ),
        (["create", "--name", "x", "--source", "a/b"], "Error: Invalid value for '--source': 'a/b' must have 1 to 40"),
        (["create", "--name", "x", "--source", "\udcff"], "Error: Invalid value for '--source': '\\udcff' must have"),
        (["create", "--name", "x", "--operator", "a\nb"], "Error: Invalid value for '--operator': 'a\\nb' must have"),
        (["revoke"], "Error: Missing argument 'KEY_ID'."),
        (["rotate", "nk_x.1", "--overlap-hours", "-1"], "Error: Invalid value for '--overlap-hours': -1 is not in"),
        (["rotate", "nk_x.1", "--overlap-hours", "1.5"], "Error: Invalid value for '--overlap-hours': '1.5' is not"),
        (["unlock", "nk_x\n"], "Error: Invalid value for 'KEY_ID': 'nk_x\\n' is no key id."),
        (["rotate", "\udcff"], "Error: Invalid value for 'KEY_ID': '\\udcff' is no key id."),
        (["revoke", "x" * 65], f"Error: Invalid value for 'KEY_ID': '{'x' * 65}' is no key id."),
    ],
)
def test_a_mistyped_command_is_wrong_usage(
    novel: NovelCommand, environ: dict[str, str], arguments: list[str], line: str
) -> None:
    assert refusal(novel, environ, *arguments, code=2).startswith(line)


# -- the operator ---------------------------------------------------------------------------------------


def test_every_change_is_in_the_journal_with_the_operator(run: Run, conn: Connection) -> None:
    key_id = json.loads(run("create", "--name", "x", "--json", "--operator", "Lan"))["key_id"]
    lock(conn, key_id)
    run("unlock", key_id, "--operator", "Minh")
    run("rotate", key_id, "--operator", "Hà")
    run("revoke", key_id, "--operator", "Tú")
    assert operators(conn, "api_key.created") == ["Lan", "Hà"]
    assert operators(conn, "api_key.unlocked") == ["Minh"]
    assert operators(conn, "api_key.rotated") == ["Hà"]
    assert operators(conn, "api_key.revoked") == ["Tú"]


# -- list -----------------------------------------------------------------------------------------------


def test_keys_are_listed_one_per_line_when_piped(run: Run, conn: Connection, make_key: MakeKey) -> None:
    plain, other, locked = make_key(), make_key("[red]Trạm[/red] :x: " + "x" * 80, sources=("b", "ấ")), make_key()
    lock(conn, locked)
    conn.execute("UPDATE wp_novel_api_keys SET last_used_at = '2026-07-31 12:34:56' WHERE key_id = %s", (other,))
    newer = json.loads(run("rotate", plain, "--json"))["key_id"]
    lines = run("list").splitlines()
    assert not [line for line in lines if line != line.rstrip()]
    heading, *rows = [re.split(r" {2,}", line) for line in lines]
    assert heading == ["KEY ID", "NAME", "PERMISSIONS", "SOURCES", "STATE", "CREATED", "LAST USED"]
    assert [row[0] for row in rows] == [plain, other, locked, newer]
    assert {row[2] for row in rows} == {"ingest:stories, ingest:chapters"}
    assert [row[3] for row in rows] == ["any", "b, ấ", "any", "any"]
    assert rows[1][1] == "[red]Trạm[/red] :x: " + "x" * 80
    assert re.fullmatch(f"active, expires at {TIME}", rows[0][4])
    assert re.fullmatch(f"locked until {TIME}", rows[2][4])
    assert (rows[1][4], rows[3][4]) == ("active", "active")
    assert all(re.fullmatch(TIME, row[5]) for row in rows)
    assert [row[6] for row in rows] == ["never", "2026-07-31 12:34", "never", "never"]


def test_keys_that_are_over_are_listed_only_on_demand(run: Run, conn: Connection, make_key: MakeKey) -> None:
    revoked, old, expired, valid = (make_key() for _ in range(4))
    run("revoke", revoked)
    conn.execute("UPDATE wp_novel_api_keys SET is_active = 0 WHERE key_id = %s", (old,))
    expire(conn, expired)
    _, line = run("list").splitlines()
    assert line.startswith(f"{valid} ")
    _, *rows = [re.split(r" {2,}", line) for line in run("list", "--all").splitlines()]
    assert [row[0] for row in rows] == [revoked, old, expired, valid]
    states = (f"revoked {TIME}", "revoked", f"expired {TIME}", "active")
    for row, state in zip(rows, states, strict=True):
        assert re.fullmatch(state, row[4])
    assert [key["state"] for key in json.loads(run("list", "--all", "--json"))] == [
        "revoked",
        "revoked",
        "expired",
        "active",
    ]
    assert [key["key_id"] for key in json.loads(run("list", "--json"))] == [valid]


def test_a_listed_key_as_json(run: Run, conn: Connection, make_key: MakeKey) -> None:
    key_id = make_key("Trạm", sources=("a",))
    conn.execute("UPDATE wp_novel_api_keys SET created_at = '2026-07-01 02:03:04'")
    conn.execute("UPDATE wp_novel_api_key_terms SET locked_until = '2026-07-02 00:00:00'")
    assert json.loads(run("list", "--json")) == [
        {
            "key_id": key_id,
            "name": "Trạm",
            "permissions": ["ingest:stories", "ingest:chapters"],
            "sources": ["a"],
            "state": "active",
            "expires_at": None,
            "locked_until": "2026-07-02T00:00:00Z",
            "revoked_at": None,
            "created_at": "2026-07-01T02:03:04Z",
            "last_used_at": None,
        }
    ]


def test_an_empty_list_says_what_to_do(run: Run, make_key: MakeKey) -> None:
    assert run("list", "--all") == "There are no API keys. Make one with: novel keys create --name NAME\n"
    run("revoke", make_key())
    assert run("list") == "There are no valid API keys. Make one with: novel keys create --name NAME\n"
    assert json.loads(run("list", "--json")) == []


def test_a_narrow_terminal_gets_a_table_that_fits(environ: dict[str, str], make_key: MakeKey) -> None:
    key_id = make_key(sources=("source one", "source two"))
    ours, theirs = os.openpty()
    done = subprocess.run(
        [novel_executable(), "keys", "list"],
        env=clean_environ(environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")
    assert key_id in shown
    assert all(len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 100 for line in shown.splitlines())


# -- revoke, rotate, unlock -----------------------------------------------------------------------------


def test_revoking_says_what_happened(run: Run, make_key: MakeKey) -> None:
    key_id = make_key()
    assert run("revoke", key_id) == f"Revoked API key {key_id} (crawler).\n"
    again = run("revoke", key_id)
    assert re.fullmatch(
        rf"API key {re.escape(key_id)} \(crawler\) was revoked already at {TIME} UTC: nothing to do\.\n", again
    )
    assert json.loads(run("revoke", key_id, "--json")) == {"key_id": key_id, "state": "revoked", "changed": False}


def test_rotating_shows_the_new_secret_and_the_end_of_the_old_key(run: Run, make_key: MakeKey) -> None:
    key_id = make_key()
    new_id, third_id = key_id.replace(".1", ".2"), key_id.replace(".1", ".3")
    key, secret, notice, end = run("rotate", key_id).splitlines()
    assert key == f"Key id  {new_id}"
    assert re.fullmatch(r"Secret  [\w-]{43}", secret)
    assert "cannot be shown again" in notice
    assert re.fullmatch(rf"{re.escape(key_id)} is valid until {TIME} UTC\.", end)
    *_, end = run("rotate", new_id, "--overlap-hours", "0").splitlines()
    assert end == f"{new_id} is no longer valid."
    assert [key["key_id"] for key in json.loads(run("list", "--json"))] == [key_id, third_id]


def test_a_rotation_as_json(run: Run, conn: Connection, make_key: MakeKey) -> None:
    key_id = make_key("Trạm", sources=("a",))
    said = json.loads(run("rotate", key_id, "--json", "--overlap-hours", "48"))
    assert len(said.pop("secret")) == 43
    old, new = api_keys.every(conn)
    assert said == {
        "key_id": new.key_id,
        "name": "Trạm",
        "permissions": ["ingest:stories", "ingest:chapters"],
        "sources": ["a"],
        "replaces": {"key_id": key_id, "expires_at": f"{old.expires_at:%Y-%m-%dT%H:%M:%SZ}"},
    }


def test_unlocking_says_what_happened(run: Run, conn: Connection, make_key: MakeKey) -> None:
    key_id = make_key()
    lock(conn, key_id)
    assert run("unlock", key_id) == f"Unlocked API key {key_id} (crawler).\n"
    assert run("unlock", key_id) == f"API key {key_id} (crawler) is not locked: nothing to do.\n"
    assert json.loads(run("unlock", key_id, "--json")) == {"key_id": key_id, "state": "active", "changed": False}


@pytest.mark.parametrize("command", WITH_A_KEY_ID)
def test_an_unknown_key_is_one_line(novel: NovelCommand, environ: dict[str, str], command: str) -> None:
    line = refusal(novel, environ, command, "nk_absent.1")
    assert line == "novel: there is no API key nk_absent.1. See which there are with: novel keys list --all"


def test_a_key_that_is_over_is_not_rotated(
    novel: NovelCommand, environ: dict[str, str], conn: Connection, make_key: MakeKey
) -> None:
    key_id = make_key()
    expire(conn, key_id)
    line = refusal(novel, environ, "rotate", key_id)
    assert line == f"novel: API key {key_id} is expired and cannot be rotated. Make a new one with: novel keys create"


# -- what must be there first ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("create", "--name", "x"), ("rotate", "nk_x.1")])
def test_without_a_master_key_no_secret_can_be_made(
    novel: NovelCommand, environ: dict[str, str], command: tuple[str, ...]
) -> None:
    line = refusal(novel, environ | {"NOVEL_MASTER_KEY": ""}, *command)
    assert line.startswith("novel: NOVEL_MASTER_KEY is not set")
    assert line.endswith("make one with: openssl rand -base64 48")


def test_listing_and_revoking_need_no_master_key(
    novel: NovelCommand, environ: dict[str, str], make_key: MakeKey
) -> None:
    without = environ | {"NOVEL_MASTER_KEY": ""}
    assert novel("keys", "revoke", make_key(), **without).returncode == 0
    assert novel("keys", "list", **without).returncode == 0


@pytest.mark.parametrize(
    "command", [("create", "--name", "x"), ("list",), *((name, "nk_x.1") for name in WITH_A_KEY_ID)]
)
def test_an_older_schema_is_refused_with_the_remedy(
    novel: NovelCommand, environ: dict[str, str], empty_conn: Connection, command: tuple[str, ...]
) -> None:
    url = empty_conn.address.url
    assert refusal(novel, environ | {"NOVEL_DATABASE_URL": url}, *command).endswith("Run: novel migrate")
    if command == ("list",):
        migrator.migrate(empty_conn, lock_seconds=5)
        version.record(empty_conn, migrations.latest() - 1)
        assert refusal(novel, environ | {"NOVEL_DATABASE_URL": url}, *command).endswith("Run: novel migrate")
