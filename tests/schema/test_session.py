from dataclasses import replace

import pymysql
import pytest

from runtime.settings import Settings
from schema import connection, session
from schema.connection import Connection


def time_limit(conn: Connection) -> float:
    """In seconds, whichever way this server counts it."""
    sql = "SELECT @@max_statement_time" if conn.dialect.is_mariadb else "SELECT @@max_execution_time / 1000"
    return float((conn.fetch_one(sql) or ())[0])


def isolation(conn: Connection) -> str:
    name = "tx_isolation" if conn.dialect.is_mariadb else "transaction_isolation"
    return str((conn.fetch_one(f"SELECT @@{name}") or ())[0])


def test_a_connection_is_set_as_every_connection_must_be(empty_settings: Settings) -> None:
    settings = replace(empty_settings.database, statement_seconds=7.5, lock_wait_seconds=3, migration_lock_seconds=11)
    with connection.connect(settings) as conn:
        assert conn.fetch_one(
            "SELECT @@time_zone, @@autocommit, @@innodb_lock_wait_timeout, @@lock_wait_timeout,"
            " @@character_set_client, @@character_set_results, @@collation_connection"
        ) == ("+00:00", 1, 3, 11, "utf8mb4", "utf8mb4", "utf8mb4_unicode_520_ci")
        assert isolation(conn) == "READ-COMMITTED"
        assert time_limit(conn) == 7.5
        (modes,) = conn.fetch_one("SELECT @@sql_mode") or ("",)
        assert set(modes.split(",")) == set(session.SQL_MODE.split(","))


def test_a_longer_statement_limit_can_be_asked_for(empty_settings: Settings) -> None:
    with connection.connect(empty_settings.database, statement_seconds=0) as conn:
        assert time_limit(conn) == 0


def test_the_clock_is_utc(conn: Connection) -> None:
    assert conn.fetch_one("SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())") == (0,)


def test_a_statement_that_takes_too_long_is_ended_by_the_server(empty_settings: Settings) -> None:
    with connection.connect(empty_settings.database, statement_seconds=0.1) as conn:
        with pytest.raises(pymysql.err.OperationalError) as error:
            conn.fetch_one(f"SELECT COUNT(*) FROM {', '.join(f'information_schema.COLUMNS c{i}' for i in range(4))}")
        assert error.value.args[0] == (1969 if conn.dialect.is_mariadb else 3024)
        assert conn.fetch_one("SELECT 1") == (1,), "and the connection lives on"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT INTO wp_novel_genres (slug, name, created_at) VALUES (REPEAT('x', 121), 'a', NOW())", "too long"),
        ("INSERT INTO wp_novel_genres (slug, name) VALUES ('a', 'a')", "doesn't have a default value"),
        ("INSERT INTO wp_novel_ratings VALUES (1, 1, 1, 256, NULL, NOW(), NOW())", "Out of range"),
        ("INSERT INTO wp_novel_ratings VALUES (1, 1, 1, 1/0, NULL, NOW(), NOW())", "Division by 0"),
        ("SELECT slug, COUNT(*) FROM wp_novel_genres GROUP BY LENGTH(name)", "GROUP BY"),
        ("CREATE TABLE x (id INT) ENGINE=Nowhere", "Unknown storage engine"),
    ],
)
def test_what_would_silently_change_data_is_an_error(conn: Connection, statement: str, reason: str) -> None:
    with pytest.raises(pymysql.MySQLError, match=reason):
        conn.execute(statement)


def test_every_letter_survives(conn: Connection) -> None:
    name = "Đấu Phá Thương Khung 斗破苍穹 🐉"
    conn.execute("INSERT INTO wp_novel_genres (slug, name, created_at) VALUES ('a', %s, NOW())", (name,))
    assert conn.fetch_one("SELECT name, CHAR_LENGTH(name) FROM wp_novel_genres") == (name, len(name))


def test_what_another_commits_is_seen_at_once_in_an_open_transaction(test_settings: Settings, conn: Connection) -> None:
    with connection.connect(test_settings.database) as other, conn.transaction():
        assert conn.fetch_one("SELECT COUNT(*) FROM wp_novel_genres") == (0,)
        other.execute("INSERT INTO wp_novel_genres (slug, name, created_at) VALUES ('a', 'a', NOW())")
        assert conn.fetch_one("SELECT COUNT(*) FROM wp_novel_genres") == (1,)
