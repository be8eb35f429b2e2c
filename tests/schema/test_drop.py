from dataclasses import replace

import pytest

from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, declared, drift, drop, migrations, migrator, turn, version
from schema.connection import Connection
from tests.schema import busy

NOT_OURS = ("wp_posts", "wp_novelist", "wp_novels", "wpXnovel_stories", "novel_stories", "my_wp_novel_stories")


def tables(conn: Connection) -> set[str]:
    return {row[0] for row in conn.fetch_all("SHOW TABLES")}


def test_only_our_tables_are_dropped(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    for table in NOT_OURS:
        empty_conn.execute(f"CREATE TABLE {table} (id INT)")
    announced = drop.tables(empty_conn)
    assert announced == sorted(declared.tables(empty_conn.dialect, prefix="wp_"))
    assert drop.drop(empty_conn, lock_seconds=10) == announced
    assert tables(empty_conn) == {"wp_users", "wp_usermeta", "wp_options", *NOT_OURS}


def test_wordpress_keeps_its_rows_and_only_our_version_is_forgotten(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    empty_conn.execute("INSERT INTO wp_users (user_login) VALUES ('anh')")
    empty_conn.execute("INSERT INTO wp_usermeta (user_id, meta_key) VALUES (1, 'nickname')")
    empty_conn.execute("INSERT INTO wp_options (option_name, option_value) VALUES ('novel_db_version_2', '1')")
    drop.drop(empty_conn, lock_seconds=10)
    assert empty_conn.fetch_all("SELECT user_login FROM wp_users") == [("anh",)]
    assert empty_conn.fetch_all("SELECT meta_key FROM wp_usermeta") == [("nickname",)]
    assert empty_conn.fetch_all("SELECT option_name FROM wp_options") == [("novel_db_version_2",)]
    assert version.current(empty_conn) == 0


@pytest.mark.parametrize("other", ["blog7_", "WP_", "wp_2_", "wp_novel_x_", "wp_novel_novel_"])
def test_tables_of_another_prefix_stay(empty_settings: Settings, empty_conn: Connection, other: str) -> None:
    with connection.connect(replace(empty_settings.database, table_prefix=other)) as theirs:
        migrator.migrate(theirs, lock_seconds=5)
        migrator.migrate(empty_conn, lock_seconds=5)
        assert drift.check(empty_conn) == []
        drop.drop(empty_conn, lock_seconds=10)
        assert drift.check(theirs) == []
        assert version.current(theirs) == migrations.latest()
        drop.drop(theirs, lock_seconds=10)
    assert tables(empty_conn) == {
        f"{prefix}{name}" for prefix in ("wp_", other) for name in ("users", "usermeta", "options")
    }


def test_dropping_again_finds_nothing_and_migrating_again_makes_all(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    drop.drop(empty_conn, lock_seconds=10)
    assert drop.drop(empty_conn, lock_seconds=10) == []
    migrator.migrate(empty_conn, lock_seconds=5)
    assert drift.check(empty_conn) == []


def test_a_half_made_schema_without_options_is_dropped_and_what_we_never_made_stays(empty_conn: Connection) -> None:
    empty_conn.execute("CREATE TABLE wp_novel_stories (id INT)")
    empty_conn.execute("CREATE TABLE wp_novel_of_mine (id INT)")
    assert drop.drop(empty_conn, lock_seconds=10) == ["wp_novel_stories"]
    assert tables(empty_conn) == {"wp_novel_of_mine"}


def test_tables_of_a_newer_program_are_not_half_dropped(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    version.record(empty_conn, migrations.latest() + 1)
    with pytest.raises(Problem, match="made by a newer program"):
        drop.drop(empty_conn, lock_seconds=10)
    assert drop.tables(empty_conn)


def test_a_drop_blocked_by_an_open_read_ends_with_a_problem(empty_settings: Settings, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    impatient = replace(empty_settings.database, migration_lock_seconds=1)
    with (
        busy.transaction(empty_conn.address, "SELECT COUNT(*) FROM wp_novel_stories"),
        pytest.raises(Problem, match=r"waited too long .* End their open transactions"),
        connection.connect(impatient, statement_seconds=0) as conn,
    ):
        drop.drop(conn, lock_seconds=10)
    drop.drop(empty_conn, lock_seconds=10)
    assert drop.tables(empty_conn) == []


def test_a_foreign_key_that_someone_made_is_named_and_nothing_is_a_traceback(empty_settings: Settings) -> None:
    with connection.connect(empty_settings.database) as conn:
        migrator.migrate(conn, lock_seconds=10)
        conn.execute(
            "CREATE TABLE theirs (id BIGINT UNSIGNED PRIMARY KEY,"
            " CONSTRAINT theirs_story FOREIGN KEY (id) REFERENCES wp_novel_stories (id))"
        )

    def drop_all() -> None:
        with connection.connect(empty_settings.database) as conn:
            drop.drop(conn, lock_seconds=10)

    with pytest.raises(Problem, match="foreign key"):
        drop_all()


def test_it_waits_for_a_migration_under_way(empty_settings: Settings) -> None:
    with connection.connect(empty_settings.database) as conn, connection.connect(empty_settings.database) as other:
        migrator.migrate(conn, lock_seconds=10)
        with turn.taken(other, lock_seconds=0), pytest.raises(Problem, match="another migration"):
            drop.drop(conn, lock_seconds=0)
        assert drop.tables(conn)
