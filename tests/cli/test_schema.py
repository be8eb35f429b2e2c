"""`novel migrate` and `novel schema status|check|drop`, as a person or a script runs them."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runtime import settings
from runtime.addresses import DatabaseAddress
from runtime.settings import Settings
from schema import connection, declared, drift, migrations, migrator, version
from schema.connection import Connection
from tests.conftest import DatabaseFactory, NovelCommand, clean_environ, novel_executable
from tests.schema import busy

NEWEST = migrations.latest()
ALL = [migration.name for migration in migrations.available()]
READ_JOBS = "SELECT COUNT(*) FROM wp_novel_ingest_jobs"


@pytest.fixture
def address(make_database: DatabaseFactory) -> DatabaseAddress:
    return make_database()


@pytest.fixture
def conn(address: DatabaseAddress) -> Iterator[Connection]:
    with connection.connect(settings.load({"NOVEL_DATABASE_URL": address.url}).database) as conn:
        yield conn


@pytest.fixture
def migrated(conn: Connection) -> Connection:
    migrator.migrate(conn, lock_seconds=5)
    return conn


def tables(conn: Connection) -> set[str]:
    return {row[0] for row in conn.fetch_all("SHOW TABLES")}


def logged(conn: Connection) -> list[str]:
    rows = conn.fetch_all(
        "SELECT reference_id FROM wp_novel_sync_logs WHERE event_type = 'schema.migrated' ORDER BY id"
    )
    return [row[0] for row in rows]


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("novel: ")
    return line


def start(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(novel_executable()), *arguments],
        env=clean_environ(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# -- migrate -----------------------------------------------------------------------------------------------------------


def test_migrate_makes_everything_says_so_and_does_nothing_the_second_time(
    novel: NovelCommand, conn: Connection
) -> None:
    first = novel("migrate", NOVEL_DATABASE_URL=conn.address.url)
    assert first.returncode == 0
    assert first.stdout == f"{conn.address.place} is now at schema version {NEWEST} (applied {', '.join(ALL)}).\n"
    assert first.stderr.startswith(f"Migrations: {len(ALL)} of {len(ALL)} (100 %)")
    assert drift.check(conn) == []
    second = novel("migrate", NOVEL_DATABASE_URL=conn.address.url)
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout == f"{conn.address.place} is at schema version {NEWEST}: nothing to do.\n"
    assert logged(conn) == ALL


def test_migrate_upgrades_an_older_database(novel: NovelCommand, conn: Connection) -> None:
    migrator.migrate(conn, lock_seconds=5, to=NEWEST - 2)
    done = novel("migrate", NOVEL_DATABASE_URL=conn.address.url)
    assert done.returncode == 0
    assert done.stdout.endswith(f"(applied {', '.join(ALL[-2:])}).\n")
    assert drift.check(conn) == []


def test_several_migrate_commands_at_once_apply_each_migration_once(conn: Connection) -> None:
    running = [start("migrate", NOVEL_DATABASE_URL=conn.address.url) for _ in range(4)]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert f"at schema version {NEWEST}" in out
    assert logged(conn) == ALL
    assert drift.check(conn) == []


def test_migrate_that_waited_for_another_says_that_the_other_did_it(conn: Connection) -> None:
    migrator.migrate(conn, lock_seconds=5, to=7)
    with busy.transaction(conn.address, READ_JOBS) as reader:
        first = start("migrate", NOVEL_DATABASE_URL=conn.address.url)
        busy.wait_for_waiter(conn, busy.FOR_A_TABLE)
        second = start("migrate", NOVEL_DATABASE_URL=conn.address.url)
        busy.wait_for_waiter(conn, busy.FOR_A_MIGRATOR)
        reader.rollback()
        out, _ = first.communicate(timeout=60)
        assert out.endswith(f"(applied {', '.join(ALL[7:])}).\n")
        out, _ = second.communicate(timeout=60)
        assert out.endswith("(applied nothing: another migration did it meanwhile).\n")
    assert (first.returncode, second.returncode) == (0, 0)


def test_migrate_killed_halfway_is_completed_by_the_next(novel: NovelCommand, conn: Connection) -> None:
    migrator.migrate(conn, lock_seconds=5, to=7)
    with busy.transaction(conn.address, READ_JOBS):
        killed = start("migrate", NOVEL_DATABASE_URL=conn.address.url)
        busy.wait_for_waiter(conn, busy.FOR_A_TABLE)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert "wp_novel_ingest_leases" in tables(conn), "it was in the middle"
    assert version.current(conn) == 7
    done = novel("migrate", NOVEL_DATABASE_URL=conn.address.url)
    assert done.returncode == 0, done.stderr
    assert drift.check(conn) == []
    assert logged(conn) == ALL


def test_migrate_blocked_by_an_open_read_ends_in_one_line(novel: NovelCommand, conn: Connection) -> None:
    migrator.migrate(conn, lock_seconds=5, to=7)
    with busy.transaction(conn.address, READ_JOBS):
        done = novel("migrate", NOVEL_DATABASE_URL=conn.address.url, NOVEL_MIGRATION_LOCK_SECONDS="1")
    assert done.returncode == 1
    *progress, line = done.stderr.splitlines()
    assert all(shown.startswith("Migrations: ") for shown in progress)
    assert line.startswith("novel: migration 0008_queue waited too long for a table that others are using:")


def test_migrate_refuses_a_newer_database(novel: NovelCommand, migrated: Connection) -> None:
    version.record(migrated, NEWEST + 1)
    line = one_line(novel("migrate", NOVEL_DATABASE_URL=migrated.address.url))
    assert f"is at schema version {NEWEST + 1}, made by a newer program" in line
    assert version.current(migrated) == NEWEST + 1


def test_migrate_with_a_prefix_makes_everything_under_it(novel: NovelCommand, conn: Connection) -> None:
    variables = {"NOVEL_DATABASE_URL": conn.address.url, "NOVEL_TABLE_PREFIX": "blog7_"}
    assert novel("migrate", **variables).returncode == 0
    assert all(name.startswith("blog7_") for name in tables(conn))
    assert {name for name in tables(conn) if name.startswith("blog7_novel_")} == set(
        declared.tables(conn.dialect, prefix="blog7_")
    )
    check = novel("schema", "check", **variables)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")
    assert f"schema version {NEWEST}, newest {NEWEST}" in novel("schema", "status", **variables).stdout


# -- status ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [0, 3, NEWEST])
def test_status_shows_what_is_applied_and_what_is_pending(novel: NovelCommand, conn: Connection, there: int) -> None:
    if there:
        migrator.migrate(conn, lock_seconds=5, to=there)
    before = tables(conn)
    done = novel("schema", "status", NOVEL_DATABASE_URL=conn.address.url)
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head == f"{conn.address.place}: schema version {there}, newest {NEWEST} ({conn.dialect.name})"
    expected = [f"  applied  {name}" for name in ALL[:there]] + [f"  pending  {name}" for name in ALL[there:]]
    assert lines == expected + (["Run: novel migrate"] if there < NEWEST else [])
    assert tables(conn) == before, "looking changes nothing"


# -- check -------------------------------------------------------------------------------------------------------------


def test_check_is_silent_on_a_fresh_install_and_names_the_drift_after_an_alter(
    novel: NovelCommand, migrated: Connection
) -> None:
    url = migrated.address.url
    fresh = novel("schema", "check", NOVEL_DATABASE_URL=url)
    assert (fresh.returncode, fresh.stdout, fresh.stderr) == (0, "", "")
    migrated.execute("ALTER TABLE wp_novel_stories DROP INDEX by_author, MODIFY title VARCHAR(200) NOT NULL, ADD x INT")
    drifted = novel("schema", "check", NOVEL_DATABASE_URL=url)
    assert (drifted.returncode, drifted.stderr) == (1, "")
    assert drifted.stdout.splitlines() == [
        "wp_novel_stories.title: type is varchar(200), should be varchar(255)",
        "wp_novel_stories.x: column is not declared",
        "wp_novel_stories index by_author: missing, should be KEY (author_name)",
    ]


def test_check_of_two_prefixes_in_one_database_is_silent_for_both(novel: NovelCommand, migrated: Connection) -> None:
    url = migrated.address.url
    assert novel("migrate", NOVEL_DATABASE_URL=url, NOVEL_TABLE_PREFIX="blog7_").returncode == 0
    for prefix in ("wp_", "blog7_"):
        done = novel("schema", "check", NOVEL_DATABASE_URL=url, NOVEL_TABLE_PREFIX=prefix)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("there", [0, 1, NEWEST - 1])
def test_check_of_an_older_database_names_the_command_that_mends_it(
    novel: NovelCommand, conn: Connection, there: int
) -> None:
    if there:
        migrator.migrate(conn, lock_seconds=5, to=there)
    assert one_line(novel("schema", "check", NOVEL_DATABASE_URL=conn.address.url)).endswith("Run: novel migrate")


def test_check_of_a_newer_database_is_refused(novel: NovelCommand, migrated: Connection) -> None:
    version.record(migrated, NEWEST + 1)
    assert "made by a newer program" in one_line(novel("schema", "check", NOVEL_DATABASE_URL=migrated.address.url))


# -- drop --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answered:
    returncode: int
    out: str
    err: str


def drop_at_a_terminal(address: DatabaseAddress, keys: str, errors: Path) -> Answered:
    """Run `novel schema drop` with a terminal as its input, type, and read what it says."""
    ours, theirs = pty.openpty()
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [str(novel_executable()), "schema", "drop"],
            env=clean_environ({"NOVEL_DATABASE_URL": address.url}),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    os.close(theirs)
    os.write(ours, keys.encode())
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    return Answered(process.returncode, out, errors.read_text())


def test_drop_lists_what_it_deletes_and_goes_on_when_the_name_is_typed(migrated: Connection, tmp_path: Path) -> None:
    for table in ("wp_posts", "wp_novelist", "blog7_novel_stories"):
        migrated.execute(f"CREATE TABLE {table} (id INT)")
    ours = sorted(declared.tables(migrated.dialect, prefix="wp_"))
    done = drop_at_a_terminal(migrated.address, f"{migrated.address.database}\n", tmp_path / "err")
    assert (done.returncode, done.err) == (0, "")
    head, *lines = done.out.splitlines()
    assert head == f"This deletes {len(ours)} tables from {migrated.address.place}, with everything in them:"
    assert lines[: len(ours)] == [f"  {table}" for table in ours]
    assert done.out.endswith(f"Dropped {len(ours)} tables.\n")
    assert tables(migrated) == {
        *("wp_users", "wp_usermeta", "wp_options", "wp_posts", "wp_novelist", "blog7_novel_stories")
    }


@pytest.mark.parametrize("keys", ["no\n", "yes\n", "y\n", "\n", "novel\n"])
def test_drop_does_nothing_after_any_other_answer(migrated: Connection, tmp_path: Path, keys: str) -> None:
    done = drop_at_a_terminal(migrated.address, keys, tmp_path / "err")
    assert done.returncode == 1
    assert done.err == "novel: that is not the name of the database: nothing was dropped.\n"
    assert drift.check(migrated) == []


def test_drop_does_nothing_when_the_terminal_is_left(migrated: Connection, tmp_path: Path) -> None:
    done = drop_at_a_terminal(migrated.address, "\x04", tmp_path / "err")
    assert done.returncode == 130
    assert done.err.strip() == "novel: stopped."
    assert drift.check(migrated) == []


@pytest.mark.parametrize("stdin", [None, "", "yes\n", "{database}\n"])
def test_drop_without_a_terminal_needs_the_option(novel: NovelCommand, migrated: Connection, stdin: str | None) -> None:
    typed = None if stdin is None else stdin.format(database=migrated.address.database)
    done = novel("schema", "drop", stdin=typed, NOVEL_DATABASE_URL=migrated.address.url)
    assert one_line(done) == "novel: dropping needs a confirmation: run it on a terminal, or add --yes."
    assert drift.check(migrated) == []


def test_drop_with_the_option_does_not_ask_and_finds_nothing_the_second_time(
    novel: NovelCommand, migrated: Connection
) -> None:
    url = migrated.address.url
    done = novel("schema", "drop", "--yes", NOVEL_DATABASE_URL=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert tables(migrated) == {"wp_users", "wp_usermeta", "wp_options"}
    again = novel("schema", "drop", "--yes", NOVEL_DATABASE_URL=url)
    assert again.returncode == 0
    assert again.stdout == f"There are no wp_novel_* tables in {migrated.address.place}.\n"
    assert novel("migrate", NOVEL_DATABASE_URL=url).returncode == 0
    assert drift.check(migrated) == []


@pytest.mark.parametrize(("dropped", "kept"), [("blog7_", "wp_"), ("wp_", "blog7_"), ("wp_", "WP_")])
def test_drop_leaves_the_other_prefix_alone(
    novel: NovelCommand, empty_settings: Settings, dropped: str, kept: str
) -> None:
    assert empty_settings.database.address is not None
    with connection.connect(replace(empty_settings.database, table_prefix=kept)) as theirs:
        migrator.migrate(theirs, lock_seconds=5)
        with connection.connect(replace(empty_settings.database, table_prefix=dropped)) as ours:
            migrator.migrate(ours, lock_seconds=5)
        url = empty_settings.database.address.url
        done = novel("schema", "drop", "--yes", NOVEL_DATABASE_URL=url, NOVEL_TABLE_PREFIX=dropped)
        assert done.returncode == 0
        assert drift.check(theirs) == []
        assert not [name for name in tables(theirs) if name.startswith(f"{dropped}novel_")]
        assert {f"{dropped}users", f"{dropped}usermeta", f"{dropped}options"} <= tables(theirs)


def test_drop_blocked_by_an_open_read_ends_in_one_line(novel: NovelCommand, migrated: Connection) -> None:
    with busy.transaction(migrated.address, READ_JOBS):
        done = novel(
            "schema", "drop", "--yes", NOVEL_DATABASE_URL=migrated.address.url, NOVEL_MIGRATION_LOCK_SECONDS="1"
        )
    assert "End their open transactions (SHOW PROCESSLIST), then try again." in one_line(done)


# -- the guard ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["ingest", "readapi", "admin", "all"])
@pytest.mark.parametrize("there", [0, NEWEST - 1])
def test_a_service_refuses_an_older_schema_and_names_the_command(
    novel: NovelCommand, conn: Connection, service: str, there: int
) -> None:
    if there:
        migrator.migrate(conn, lock_seconds=5, to=there)
    line = one_line(novel("serve", service, NOVEL_DATABASE_URL=conn.address.url))
    assert line.endswith(f"this program needs version {NEWEST}. Run: novel migrate")
