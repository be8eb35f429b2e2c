"""A WordPress whose own prefix is ours with `novel_` behind it: our tables and its would be one."""

from dataclasses import replace

import pytest

from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, drop, live, migrator
from schema.connection import Connection


@pytest.fixture
def neighbour(empty_conn: Connection) -> Connection:
    empty_conn.execute("CREATE TABLE wp_novel_options (option_id INT PRIMARY KEY)")
    empty_conn.execute("CREATE TABLE wp_novel_comments (comment_ID INT PRIMARY KEY)")
    return empty_conn


def test_no_migration_mixes_with_its_tables(neighbour: Connection) -> None:
    with pytest.raises(Problem, match="a WordPress with the table prefix 'wp_novel_'"):
        migrator.migrate(neighbour, lock_seconds=10)
    assert neighbour.fetch_all("SHOW TABLES LIKE 'wp\\_novel\\_%'") == [("wp_novel_comments",), ("wp_novel_options",)]


def test_we_do_not_become_such_a_neighbour_ourselves(empty_settings: Settings, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    with connection.connect(replace(empty_settings.database, table_prefix="wp_novel_")) as conn:
        with pytest.raises(Problem, match="an installation of ours with the table prefix 'wp_'"):
            migrator.migrate(conn, lock_seconds=10)
        assert not live.column_names(conn, "wp_novel_options")


def test_no_drop_deletes_its_tables(neighbour: Connection) -> None:
    with pytest.raises(Problem, match="a WordPress with the table prefix 'wp_novel_'"):
        drop.drop(neighbour, lock_seconds=10)
    assert len(neighbour.fetch_all("SHOW TABLES")) == 2
