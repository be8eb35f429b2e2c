"""`novel doctor`: a line for each thing it looked at, and an exit code for scripts."""

import os
import re
import subprocess

from runtime import ports
from schema.connection import Connection
from tests.conftest import DatabaseFactory, NovelCommand, clean_environ, novel_executable

LINE = re.compile(r"(ok  |warn|FAIL)  (.{20}) (.+)")
SUBJECTS = [
    *("database", "isolation", "time zone", "max_allowed_packet", "writable", "durability", "clock"),
    *("collation", "schema", "full-text", "redis"),
]


def lines(output: str) -> dict[str, tuple[str, str]]:
    """What was said of each subject: a mark, and the text."""
    found = {}
    for line in output.splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        found[match[2].strip()] = match[1].strip(), match[3]
    found.pop("disk", None)  # as full as the machine's is
    return found


def test_a_healthy_installation_is_ok_line_by_line(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("doctor", **environ)
    said = lines(done.stdout)
    assert {subject: mark for subject, (mark, _) in said.items()} == dict.fromkeys(SUBJECTS, "ok")
    assert list(said) == SUBJECTS
    assert done.stderr == ""
    assert done.returncode == (1 if re.search("^FAIL  disk ", done.stdout, re.MULTILINE) else 0)


def test_a_doubt_is_a_warning_and_not_a_failure(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("doctor", **environ | {"NOVEL_REDIS_URL": ""})
    said = lines(done.stdout)
    assert said.pop("redis") == ("warn", "not configured: nonces, limits and caches use the database")
    assert {mark for mark, _ in said.values()} == {"ok"}
    assert done.returncode == (1 if re.search("^FAIL  disk ", done.stdout, re.MULTILINE) else 0)


def test_a_database_that_is_down_fails_and_the_rest_is_examined(novel: NovelCommand, environ: dict[str, str]) -> None:
    port = ports.find()
    done = novel("doctor", **environ | {"NOVEL_DATABASE_URL": f"mysql://u:hush@127.0.0.1:{port}/novel"})
    said = lines(done.stdout)
    assert said["database"] == (
        "FAIL",
        f"no database server answers at 127.0.0.1:{port}. Start it, or correct NOVEL_DATABASE_URL.",
    )
    assert said["redis"][0] == "ok"
    assert set(said) == {"database", "redis"}
    assert (done.returncode, done.stderr) == (1, "")
    assert "hush" not in done.stdout


def test_a_redis_that_is_down_fails(novel: NovelCommand, environ: dict[str, str]) -> None:
    port = ports.find()
    done = novel("doctor", **environ | {"NOVEL_REDIS_URL": f"redis://127.0.0.1:{port}/0"})
    assert lines(done.stdout)["redis"] == (
        "FAIL",
        f"no answer from 127.0.0.1:{port} (ConnectionError): check NOVEL_REDIS_URL",
    )
    assert (done.returncode, done.stderr) == (1, "")


def test_a_database_without_our_tables_fails_with_the_remedy(
    novel: NovelCommand, environ: dict[str, str], make_database: DatabaseFactory
) -> None:
    url = make_database().url
    done = novel("doctor", **environ | {"NOVEL_DATABASE_URL": url})
    mark, text = lines(done.stdout)["schema"]
    assert mark == "FAIL"
    assert text.endswith("Run: novel migrate")
    assert done.returncode == 1
    assert novel("migrate", **environ | {"NOVEL_DATABASE_URL": url}).returncode == 0
    assert lines(novel("doctor", **environ | {"NOVEL_DATABASE_URL": url}).stdout)["schema"][0] == "ok"


def test_without_any_setting_it_says_what_to_set(novel: NovelCommand) -> None:
    done = novel("doctor")
    said = lines(done.stdout)
    assert said["settings"] == ("warn", "NOVEL_MASTER_KEY is not set: API keys cannot be made or checked")
    assert said["database"][0] == "FAIL"
    assert "novel up" in said["database"][1]
    assert said["redis"][0] == "warn"
    assert (done.returncode, done.stderr) == (1, "")


def test_no_secret_is_shown(novel: NovelCommand, environ: dict[str, str], conn: Connection) -> None:
    done = novel("doctor", **environ)
    for secret in (conn.address.password, environ["NOVEL_MASTER_KEY"], environ["NOVEL_REDIS_URL"]):
        assert secret not in done.stdout + done.stderr


def test_on_a_terminal_the_marks_have_colours(environ: dict[str, str]) -> None:
    ours, theirs = os.openpty()
    done = subprocess.run(
        [novel_executable(), "doctor"],
        env=clean_environ(environ | {"NOVEL_REDIS_URL": "", "TERM": "xterm"}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.stderr == b""
    assert "\x1b[32mok  \x1b[0m  database" in shown
    assert "\x1b[33mwarn\x1b[0m  redis" in shown
