import threading
from dataclasses import replace

import pytest

from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, declared, drift, drop, live, migrations, migrator, version
from schema.connection import Connection
from schema.migrations import Migration
from tests.schema import busy

ALL = [migration.name for migration in migrations.available()]
# 0008 makes three tables and then alters the job table: whoever reads that one stops it halfway.
READ_JOBS = "SELECT COUNT(*) FROM wp_novel_ingest_jobs"
HALF = "wp_novel_ingest_leases"
BEFORE, REST = 7, list(range(8, migrations.latest() + 1))


def logged(conn: Connection, event_type: str = "schema.migrated") -> list[str]:
    rows = conn.fetch_all(
        "SELECT reference_id FROM wp_novel_sync_logs WHERE event_type = %s ORDER BY id", (event_type,)
    )
    return [row[0] for row in rows]


def recorded(conn: Connection) -> list[tuple[str, str]]:
    return [
        (value, autoload)
        for value, autoload in conn.fetch_all(
            "SELECT option_value, autoload FROM wp_options WHERE option_name = 'novel_db_version'"
        )
    ]


def tables(conn: Connection) -> set[str]:
    return {row[0] for row in conn.fetch_all("SHOW TABLES")}


# -- the same schema, by every way -------------------------------------------------------------------------------------


def test_a_clean_install_is_exactly_the_declared_schema(empty_conn: Connection) -> None:
    applied = migrator.migrate(empty_conn, lock_seconds=5)
    assert [migration.name for migration in applied] == ALL
    assert drift.check(empty_conn) == []
    assert version.current(empty_conn) == migrations.latest()


@pytest.mark.parametrize("start", range(1, migrations.latest()))
def test_an_upgrade_from_each_earlier_version_gives_the_same_schema(
    conn: Connection, empty_conn: Connection, start: int
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=start)
    assert version.current(empty_conn) == start
    applied = migrator.migrate(empty_conn, lock_seconds=5)
    assert [migration.number for migration in applied] == list(range(start + 1, migrations.latest() + 1))
    assert drift.check(empty_conn) == []
    assert live.tables(empty_conn) == live.tables(conn)


def test_running_every_migration_twice_changes_nothing(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    before = live.tables(empty_conn)
    version.record(empty_conn, 0)
    assert len(migrator.migrate(empty_conn, lock_seconds=5)) == migrations.latest()
    assert live.tables(empty_conn) == before
    assert migrator.migrate(empty_conn, lock_seconds=5) == []


def test_an_upgrade_keeps_the_rows(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=6)
    empty_conn.execute(
        "INSERT INTO wp_novel_stories (source, source_story_id, slug, title, created_at, updated_at)"
        " VALUES ('a', '1', 's', 'Đế Bá', NOW(), NOW())"
    )
    empty_conn.execute(
        "INSERT INTO wp_novel_ingest_jobs"
        " (job_type, source, request_id, idempotency_key, external_ref, payload_hash, next_run_at, created_at,"
        " updated_at)"
        " VALUES ('stories', 'a', 'r', 'k', '1', REPEAT('x', 32), NOW(), NOW(), NOW())"
    )
    migrator.migrate(empty_conn, lock_seconds=5)
    assert empty_conn.fetch_all("SELECT title, search_text FROM wp_novel_stories") == [("Đế Bá", None)]
    assert empty_conn.fetch_all("SELECT external_ref, crashes, error_code FROM wp_novel_ingest_jobs") == [
        ("1", 0, None)
    ]


def test_a_migration_whose_effect_is_already_there_is_recorded_and_nothing_else(empty_conn: Connection) -> None:
    """As when someone added the column and the index by hand."""
    migrator.migrate(empty_conn, lock_seconds=5, to=6)
    empty_conn.execute("ALTER TABLE wp_novel_stories ADD COLUMN search_text TEXT COLLATE utf8mb4_nopad_bin NULL")
    empty_conn.execute("ALTER TABLE wp_novel_stories ADD FULLTEXT INDEX search (search_text)")
    migrator.migrate(empty_conn, lock_seconds=5)
    assert drift.check(empty_conn) == []


# -- what is written down ----------------------------------------------------------------------------------------------


def test_each_result_is_logged(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    assert empty_conn.fetch_all(
        "SELECT event_type, level, reference_id, message FROM wp_novel_sync_logs ORDER BY id"
    ) == [("schema.migrated", "info", name, f"Applied migration {name}.") for name in ALL]


def test_the_version_is_one_row_of_the_options_that_wordpress_does_not_load(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=3)
    assert recorded(empty_conn) == [("3", "no")]
    migrator.migrate(empty_conn, lock_seconds=5)
    assert recorded(empty_conn) == [(str(migrations.latest()), "no")]


def test_each_applied_migration_is_announced_in_order(empty_conn: Connection) -> None:
    announced: list[Migration] = []
    applied = migrator.migrate(
        empty_conn, lock_seconds=5, on_applied=lambda migration, seconds: announced.append(migration)
    )
    assert announced == applied
    assert [migration.name for migration in announced] == ALL


def test_pending_is_what_a_run_would_apply(empty_conn: Connection) -> None:
    assert [migration.number for migration in migrator.pending(empty_conn, to=2)] == [1, 2]
    migrator.migrate(empty_conn, lock_seconds=5, to=5)
    assert [migration.number for migration in migrator.pending(empty_conn)] == list(range(6, migrations.latest() + 1))


def test_a_database_newer_than_the_program_is_refused_and_stays_as_it_is(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    version.record(empty_conn, migrations.latest() + 1)
    with pytest.raises(Problem) as problem:
        migrator.migrate(empty_conn, lock_seconds=5)
    text = str(problem.value)
    assert f"at schema version {migrations.latest() + 1}" in text
    assert f"this program knows versions up to {migrations.latest()}" in text
    assert "newer" in text
    assert "\n" not in text
    assert recorded(empty_conn) == [(str(migrations.latest() + 1), "no")]


# -- several at once ---------------------------------------------------------------------------------------------------


def test_of_eight_migrators_at_once_each_migration_is_applied_by_one(empty_settings: Settings) -> None:
    barrier = threading.Barrier(8)

    def run() -> list[Migration]:
        with connection.connect(empty_settings.database, statement_seconds=0) as conn:
            barrier.wait(busy.PATIENCE_SECONDS)
            return migrator.migrate(conn, lock_seconds=20)

    results = [running.result() for running in [busy.Running(run) for _ in range(8)]]
    assert sorted([len(result) for result in results]) == [0] * 7 + [len(ALL)]
    with connection.connect(empty_settings.database) as conn:
        assert logged(conn) == ALL
        assert drift.check(conn) == []


def test_a_migrator_waits_for_the_one_before_it_and_then_finds_nothing_to_do(
    empty_settings: Settings, empty_conn: Connection
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    with busy.transaction(empty_conn.address, READ_JOBS) as reader:
        first = busy.migrate_elsewhere(empty_settings.database)
        busy.wait_for_waiter(empty_conn, busy.FOR_A_TABLE)
        second = busy.migrate_elsewhere(empty_settings.database)
        busy.wait_for_waiter(empty_conn, busy.FOR_A_MIGRATOR)
        reader.rollback()
        assert [migration.number for migration in first.result()] == REST
        assert second.result() == []


def test_a_migrator_that_waited_too_long_for_another_says_so(empty_settings: Settings, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    with busy.transaction(empty_conn.address, READ_JOBS) as reader:
        first = busy.migrate_elsewhere(empty_settings.database)
        busy.wait_for_waiter(empty_conn, busy.FOR_A_TABLE)
        with pytest.raises(Problem, match=r"^another migration of this database has been running for more than 1 "):
            migrator.migrate(empty_conn, lock_seconds=1)
        reader.rollback()
        assert [migration.number for migration in first.result()] == REST


def test_a_migration_of_another_prefix_does_not_wait(empty_settings: Settings, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    with busy.transaction(empty_conn.address, READ_JOBS) as reader:
        first = busy.migrate_elsewhere(empty_settings.database)
        busy.wait_for_waiter(empty_conn, busy.FOR_A_TABLE)
        other = busy.migrate_elsewhere(empty_settings.database, prefix="blog7_", lock_seconds=1)
        assert len(other.result()) == len(ALL)
        reader.rollback()
        first.result()


def test_the_lock_is_given_back(empty_settings: Settings, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=1)  # and the connection stays open
    assert len(busy.migrate_elsewhere(empty_settings.database, lock_seconds=1).result()) == len(ALL) - 1


# -- broken off --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("migration", migrations.available(), ids=lambda migration: migration.name)
def test_a_migration_broken_off_after_any_statement_is_completed(empty_conn: Connection, migration: Migration) -> None:
    for done in range(len(migration.statements) + 1):
        migrator.migrate(empty_conn, lock_seconds=5, to=migration.number - 1) if migration.number > 1 else None
        for statement in migration.statements[:done]:
            empty_conn.execute(statement)
        migrator.migrate(empty_conn, lock_seconds=5, to=migration.number)
        migrator.migrate(empty_conn, lock_seconds=5)
        assert drift.check(empty_conn) == [], f"after {done} statements"
        drop.drop(empty_conn, lock_seconds=10)
        empty_conn.execute("DROP TABLE wp_users, wp_usermeta, wp_options")


def test_a_migration_whose_connection_is_killed_halfway_is_completed_by_the_next(
    empty_settings: Settings, empty_conn: Connection
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    with busy.transaction(empty_conn.address, READ_JOBS):
        broken = busy.migrate_elsewhere(empty_settings.database)
        empty_conn.execute("KILL %s", (busy.wait_for_waiter(empty_conn, busy.FOR_A_TABLE),))
        with pytest.raises(Problem) as problem:
            broken.result()
    assert "\n" not in str(problem.value)
    assert "closed the connection" in str(problem.value)
    assert HALF in tables(empty_conn)
    assert version.current(empty_conn) == BEFORE
    assert [migration.number for migration in migrator.migrate(empty_conn, lock_seconds=20)] == REST
    assert drift.check(empty_conn) == []
    assert logged(empty_conn) == ALL


def test_a_migrator_killed_while_it_waits_for_another_says_so_in_one_line(
    empty_settings: Settings, empty_conn: Connection
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    with busy.transaction(empty_conn.address, READ_JOBS) as reader:
        first = busy.migrate_elsewhere(empty_settings.database)
        busy.wait_for_waiter(empty_conn, busy.FOR_A_TABLE)
        second = busy.migrate_elsewhere(empty_settings.database)
        empty_conn.execute("KILL %s", (busy.wait_for_waiter(empty_conn, busy.FOR_A_MIGRATOR),))
        with pytest.raises(Problem, match="closed the connection"):
            second.result()
        reader.rollback()
        first.result()


# -- blocked -----------------------------------------------------------------------------------------------------------


def test_a_migration_blocked_by_an_open_read_ends_with_a_problem_and_is_completed_later(
    empty_settings: Settings, empty_conn: Connection
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    impatient = replace(empty_settings.database, migration_lock_seconds=1)
    with (
        busy.transaction(empty_conn.address, READ_JOBS),
        connection.connect(impatient, statement_seconds=0) as conn,
        pytest.raises(Problem) as problem,
    ):
        migrator.migrate(conn, lock_seconds=5)
    assert str(problem.value) == (
        "migration 0008_queue waited too long for a table that others are using:"
        " end their open transactions (SHOW PROCESSLIST), then run novel migrate again."
    )
    assert version.current(empty_conn) == BEFORE
    assert logged(empty_conn, "schema.migration_failed") == ["0008_queue"]
    assert empty_conn.fetch_all(
        "SELECT level FROM wp_novel_sync_logs WHERE event_type = 'schema.migration_failed'"
    ) == [("error",)]
    migrator.migrate(empty_conn, lock_seconds=5)
    assert drift.check(empty_conn) == []


def test_a_version_row_that_another_holds_is_a_problem_too_and_the_log_tells_the_truth(
    empty_settings: Settings, empty_conn: Connection
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    impatient = replace(empty_settings.database, lock_wait_seconds=1)
    hold = "UPDATE wp_options SET autoload = 'yes' WHERE option_name = 'novel_db_version'"
    with (
        busy.transaction(empty_conn.address, hold),
        connection.connect(impatient, statement_seconds=0) as conn,
        pytest.raises(Problem, match=r"^migration 0008_queue waited too long .* run novel migrate again\.$"),
    ):
        migrator.migrate(conn, lock_seconds=5)
    assert version.current(empty_conn) == BEFORE
    assert logged(empty_conn, "schema.migration_failed") == ["0008_queue"]
    migrator.migrate(empty_conn, lock_seconds=5)
    assert logged(empty_conn) == [*ALL[: BEFORE + 1], *ALL[BEFORE:]], "it was applied twice"
    assert drift.check(empty_conn) == []


def test_a_result_that_cannot_be_logged_is_not_recorded_either(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=BEFORE)
    empty_conn.execute("RENAME TABLE wp_novel_sync_logs TO wp_away")
    with pytest.raises(Problem, match="migration 0008_queue failed"):
        migrator.migrate(empty_conn, lock_seconds=5)
    assert version.current(empty_conn) == BEFORE
    empty_conn.execute("RENAME TABLE wp_away TO wp_novel_sync_logs")
    migrator.migrate(empty_conn, lock_seconds=5)
    assert logged(empty_conn) == ALL


def test_a_statement_that_cannot_work_names_the_migration_and_the_cause(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=6)
    empty_conn.execute("RENAME TABLE wp_novel_stories TO wp_away")
    with pytest.raises(Problem) as problem:
        migrator.migrate(empty_conn, lock_seconds=5)
    text = str(problem.value)
    assert text.startswith("migration 0007_search failed at «ALTER TABLE wp_novel_stories ADD COLUMN")
    assert "doesn't exist" in text
    assert "\n" not in text
    assert logged(empty_conn, "schema.migration_failed") == ["0007_search"]


# -- prefixes ----------------------------------------------------------------------------------------------------------


def test_with_another_prefix_everything_lives_under_it(empty_settings: Settings) -> None:
    with connection.connect(replace(empty_settings.database, table_prefix="blog7_")) as conn:
        migrator.migrate(conn, lock_seconds=5)
        ours = {name.replace("wp_", "blog7_", 1) for name in declared.tables(conn.dialect, prefix="wp_")}
        assert tables(conn) == ours | {"blog7_users", "blog7_usermeta", "blog7_options"}
        assert drift.check(conn) == []


# wp_ beside a blog of a multisite, names that contain each other, and names that differ in case only.
@pytest.mark.parametrize(
    ("one", "other"), [("wp_", "wp_2_"), ("blog7_", "wp_"), ("a", "aa"), ("blog_", "BLOG_"), ("x" * 20, "y" * 20)]
)
def test_two_prefixes_live_side_by_side_in_one_database(empty_settings: Settings, one: str, other: str) -> None:
    with (
        connection.connect(replace(empty_settings.database, table_prefix=one)) as mine,
        connection.connect(replace(empty_settings.database, table_prefix=other)) as theirs,
    ):
        migrator.migrate(mine, lock_seconds=5, to=BEFORE)
        assert len(migrator.migrate(theirs, lock_seconds=5)) == len(ALL)
        assert version.current(mine) == BEFORE
        assert [migration.number for migration in migrator.migrate(mine, lock_seconds=5)] == REST
        assert drift.check(mine) == []
        assert drift.check(theirs) == []
        assert logged(mine) == logged(theirs) == ALL


# -- WordPress's tables ------------------------------------------------------------------------------------------------

FOREIGN_SHAPES = (
    "CREATE TABLE wp_options (option_id INT AUTO_INCREMENT PRIMARY KEY, option_name VARCHAR(64) UNIQUE,"
    " option_value TEXT, autoload VARCHAR(9), mine INT) ENGINE=MyISAM DEFAULT CHARSET latin1",
    "CREATE TABLE wp_users (ID INT PRIMARY KEY, user_login VARCHAR(60), spam TINYINT) DEFAULT CHARSET utf8mb3",
    "CREATE TABLE wp_usermeta (umeta_id INT PRIMARY KEY, user_id INT, meta_key VARCHAR(255), meta_value TEXT)",
)


def test_wordpress_tables_that_exist_are_not_touched(empty_conn: Connection) -> None:
    for statement in FOREIGN_SHAPES:
        empty_conn.execute(statement)
    empty_conn.execute("INSERT INTO wp_options (option_name, option_value, mine) VALUES ('siteurl', 'http://x', 3)")
    empty_conn.execute("INSERT INTO wp_users VALUES (7, 'anh', 0)")
    empty_conn.execute("INSERT INTO wp_usermeta VALUES (1, 7, 'wp_capabilities', 'a:0:{}')")
    shapes = [empty_conn.fetch_one(f"SHOW CREATE TABLE {table}") for table in ("wp_users", "wp_usermeta")]
    options = live.column_names(empty_conn, "wp_options")
    migrator.migrate(empty_conn, lock_seconds=5)
    assert [empty_conn.fetch_one(f"SHOW CREATE TABLE {table}") for table in ("wp_users", "wp_usermeta")] == shapes
    assert live.column_names(empty_conn, "wp_options") == options
    assert empty_conn.fetch_all("SELECT * FROM wp_users") == [(7, "anh", 0)]
    assert empty_conn.fetch_all("SELECT * FROM wp_usermeta") == [(1, 7, "wp_capabilities", "a:0:{}")]
    assert empty_conn.fetch_all("SELECT * FROM wp_options") == [
        (1, "siteurl", "http://x", None, 3),
        (2, "novel_db_version", str(migrations.latest()), "no", None),
    ]
    assert empty_conn.fetch_one(
        "SELECT ENGINE, TABLE_COLLATION FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'wp_options'"
    ) == ("MyISAM", "latin1_swedish_ci")


@pytest.mark.parametrize("kept", range(3))
def test_only_the_wordpress_tables_that_are_missing_are_made(empty_conn: Connection, kept: int) -> None:
    empty_conn.execute(FOREIGN_SHAPES[kept])
    table = FOREIGN_SHAPES[kept].split()[2]
    shape = live.column_names(empty_conn, table)
    migrator.migrate(empty_conn, lock_seconds=5)
    assert {"wp_users", "wp_usermeta", "wp_options"} <= tables(empty_conn)
    assert live.column_names(empty_conn, table) == shape
