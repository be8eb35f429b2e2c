import pytest

from runtime.settings import Settings
from schema import connection, declared, drift, drop, live, migrations, migrator, version
from schema.connection import Connection


def test_a_clean_install_is_exactly_the_declared_schema(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    assert drift.check(empty_conn) == []
    assert version.current(empty_conn) == migrations.latest()


@pytest.mark.parametrize("start", range(1, migrations.latest()))
def test_an_upgrade_from_each_earlier_version_gives_the_same_schema(empty_conn: Connection, start: int) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=start)
    assert version.current(empty_conn) == start
    migrator.migrate(empty_conn, lock_seconds=5)
    assert drift.check(empty_conn) == []


def test_running_every_migration_twice_changes_nothing(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    before = live.tables(empty_conn)
    version.record(empty_conn, 0)
    assert len(migrator.migrate(empty_conn, lock_seconds=5)) == migrations.latest()
    assert live.tables(empty_conn) == before
    assert migrator.migrate(empty_conn, lock_seconds=5) == []


def test_each_result_is_logged(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    rows = empty_conn.fetch_all("SELECT reference_id FROM wp_novel_sync_logs WHERE event_type = 'schema.migrated'")
    assert [row[0] for row in rows] == [migration.name for migration in migrations.available()]


def test_drift_after_an_alter_by_hand_is_named(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5)
    empty_conn.execute(
        "ALTER TABLE wp_novel_stories DROP INDEX by_author, MODIFY title VARCHAR(200) NOT NULL, ADD x INT"
    )
    assert drift.check(empty_conn) == [
        "wp_novel_stories.title: type is varchar(200), should be varchar(255)",
        "wp_novel_stories.x: column is not declared",
        "wp_novel_stories index by_author: missing, should be KEY (author_name)",
    ]


def test_with_another_prefix_everything_lives_under_it(empty_settings: Settings) -> None:
    from dataclasses import replace

    with connection.connect(replace(empty_settings.database, table_prefix="blog7_")) as conn:
        migrator.migrate(conn, lock_seconds=5)
        tables = {row[0] for row in conn.fetch_all("SHOW TABLES")}
        assert {table for table in tables if not table.startswith("blog7_")} == set()
        assert set(declared.tables(conn.dialect, prefix="blog7_")) <= tables
        assert drift.check(conn) == []


def test_wordpress_tables_that_exist_are_left_alone(empty_conn: Connection) -> None:
    empty_conn.execute(
        "CREATE TABLE wp_options (option_id INT AUTO_INCREMENT PRIMARY KEY, option_name VARCHAR(191) UNIQUE,"
        " option_value TEXT, autoload VARCHAR(20), mine INT)"
    )
    before = empty_conn.fetch_one("SHOW CREATE TABLE wp_options")
    migrator.migrate(empty_conn, lock_seconds=5)
    drop.drop(empty_conn)
    after = empty_conn.fetch_one("SHOW CREATE TABLE wp_options")
    assert before is not None
    assert after is not None
    assert before[1] == after[1].replace(" AUTO_INCREMENT=9", "")
    assert {row[0] for row in empty_conn.fetch_all("SHOW TABLES")} == {"wp_options", "wp_usermeta", "wp_users"}


def test_identifiers_compare_byte_by_byte_and_text_folds(conn: Connection) -> None:
    insert = "INSERT INTO wp_novel_genres (slug, name, created_at) VALUES (%s, %s, NOW())"
    for slug, name in (("abc", "Đô Thị"), ("Abc", "b"), ("abc ", "c")):
        conn.execute(insert, (slug, name))
    assert conn.fetch_all("SELECT name FROM wp_novel_genres WHERE slug = %s", ("Abc",)) == [("b",)]
    assert conn.fetch_all("SELECT slug FROM wp_novel_genres WHERE name = %s", ("do thi",)) == [("abc",)]
