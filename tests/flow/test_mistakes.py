"""What a person can get wrong ends in one line that says what to do, without a traceback, with a failing exit code."""

import pytest

from runtime import ports
from schema import migrations, migrator, version
from schema.connection import Connection
from tests.conftest import DatabaseFactory, DatabaseServer, NovelCommand

COMMANDS = [("migrate",), ("schema", "check"), ("serve", "all", "--port", "1")]


def one_line(novel: NovelCommand, *arguments: str, **variables: str) -> str:
    done = novel(*arguments, **variables)
    assert done.returncode in (1, 2), done
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_password(novel: NovelCommand, database_server: DatabaseServer, command: tuple[str, ...]) -> None:
    url = database_server.address.url.replace(database_server.address.password, "wrong")
    line = one_line(novel, *command, NOVEL_DATABASE_URL=url)
    assert "wrong user or password. Correct NOVEL_DATABASE_URL." in line


@pytest.mark.parametrize("command", COMMANDS)
def test_server_down(novel: NovelCommand, command: tuple[str, ...]) -> None:
    port = ports.find()
    line = one_line(novel, *command, NOVEL_DATABASE_URL=f"mysql://u:p@127.0.0.1:{port}/novel")
    assert line == (f"novel: no database server answers at 127.0.0.1:{port}. Start it, or correct NOVEL_DATABASE_URL.")


def test_no_such_database(novel: NovelCommand, database_server: DatabaseServer) -> None:
    line = one_line(novel, "migrate", NOVEL_DATABASE_URL=database_server.address.url + "_absent")
    assert "there is no database" in line
    assert "CREATE DATABASE" in line


def test_read_only_server(novel: NovelCommand, database_server: DatabaseServer, make_database: DatabaseFactory) -> None:
    url = make_database().url
    root = database_server.as_root()
    with root.cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = 1")
        try:
            line = one_line(novel, "migrate", NOVEL_DATABASE_URL=url)
        finally:
            cursor.execute("SET GLOBAL read_only = 0")
    root.close()
    assert "is read-only" in line
    assert "Point NOVEL_DATABASE_URL at the primary" in line


def test_old_schema_stops_every_service_and_names_the_command(novel: NovelCommand, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    version.record(empty_conn, migrations.latest() - 1)
    for service in ("ingest", "readapi", "admin", "all"):
        line = one_line(novel, "serve", service, NOVEL_DATABASE_URL=empty_conn.address.url)
        assert f"is at schema version {migrations.latest() - 1}" in line
        assert line.endswith("Run: novel migrate")


def test_empty_database(novel: NovelCommand, make_database: DatabaseFactory) -> None:
    line = one_line(novel, "serve", "all", NOVEL_DATABASE_URL=make_database().url)
    assert line.endswith("Run: novel migrate")


@pytest.mark.parametrize("prefix", ["wp-", "a b", "wp_;", "`", "", "x" * 21, "1e5", "wp_\n"])
def test_prefix_with_odd_characters(novel: NovelCommand, prefix: str) -> None:
    if prefix == "wp_\n":  # white space around a value is nobody's intention
        assert "NOVEL_DATABASE_URL is not set" in one_line(novel, "migrate", NOVEL_TABLE_PREFIX=prefix)
        return
    line = one_line(novel, "migrate", NOVEL_DATABASE_URL="mysql://u:p@h/d", NOVEL_TABLE_PREFIX=prefix)
    assert line.startswith("novel: NOVEL_TABLE_PREFIX must be 1 to 20 letters, digits or underscores")


def test_no_database_at_all(novel: NovelCommand) -> None:
    assert "NOVEL_DATABASE_URL is not set" in one_line(novel, "migrate")


def test_a_secret_is_not_repeated_in_a_message(novel: NovelCommand) -> None:
    line = one_line(novel, "migrate", NOVEL_DATABASE_URL="mysql://u:hush@h/")
    assert "NOVEL_DATABASE_URL must end with the name of a database" in line
    assert "hush" not in line


def test_a_port_in_use(novel: NovelCommand, environ: dict[str, str]) -> None:
    from runtime import server

    port = ports.find()
    with server.listen("127.0.0.1", port):
        line = one_line(novel, "serve", "all", "--port", str(port), **environ)
    assert f"cannot listen on 127.0.0.1:{port}" in line


def test_dropping_needs_a_confirmation(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("schema", "drop", **environ)
    assert done.returncode == 1
    assert "add --yes" in done.stderr
    assert novel("schema", "check", **environ).stdout == ""


@pytest.mark.parametrize("service", ["all", "ingest"])
def test_ingest_without_a_master_key_is_refused_in_one_line(
    novel: NovelCommand, environ: dict[str, str], service: str
) -> None:
    done = novel("serve", service, NOVEL_DATABASE_URL=environ["NOVEL_DATABASE_URL"])
    assert done.returncode == 1
    assert done.stderr.startswith("novel: NOVEL_MASTER_KEY is not set")
    assert done.stderr.count("\n") == 1
