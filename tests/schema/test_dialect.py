"""What the dialects claim, and that the server the tests run on really is as its dialect says."""

import pymysql
import pytest

from runtime.problems import Problem
from schema import declared, dialect, migrations, migrator, session, version
from schema.connection import Connection
from schema.dialect import Dialect

MARIADB = Dialect("MariaDB", (10, 11, 6))
MYSQL = Dialect("MySQL", (8, 0, 36))


@pytest.mark.parametrize(
    ("greeting", "product", "numbers"),
    [
        ("5.5.5-10.6.1-MariaDB", "MariaDB", (10, 6, 1)),
        ("5.5.5-10.11.6-MariaDB-0+deb12u1-log", "MariaDB", (10, 11, 6)),
        ("11.4.2-MariaDB-ubu2404", "MariaDB", (11, 4, 2)),
        ("8.0.19", "MySQL", (8, 0, 19)),
        ("8.0.36-0ubuntu0.22.04.1", "MySQL", (8, 0, 36)),
        ("8.4.0-commercial", "MySQL", (8, 4, 0)),
        ("9.1.0", "MySQL", (9, 1, 0)),
        ("8.0.35-27", "MySQL", (8, 0, 35)),
    ],
)
def test_a_server_is_known_by_its_greeting(greeting: str, product: str, numbers: tuple[int, int, int]) -> None:
    found = dialect.detect(greeting)
    assert (found.product, found.version) == (product, numbers)
    assert found.name == f"{product} {numbers[0]}.{numbers[1]}.{numbers[2]}"


@pytest.mark.parametrize(
    ("greeting", "text"),
    [
        ("5.5.5-10.5.23-MariaDB", "the database server is MariaDB 10.5.23; at least MariaDB 10.6.0 is needed."),
        ("8.0.18", "the database server is MySQL 8.0.18; at least MySQL 8.0.19 is needed."),
        ("5.7.44-log", "the database server is MySQL 5.7.44; at least MySQL 8.0.19 is needed."),
        ("who knows", "the database server gives an unknown version: 'who knows'."),
    ],
)
def test_a_server_too_old_or_unknown_is_refused_in_one_line(greeting: str, text: str) -> None:
    with pytest.raises(Problem) as problem:
        dialect.detect(greeting)
    assert str(problem.value) == text


def test_mariadb_reads_the_sql_as_it_is_written() -> None:
    for migration in migrations.available():
        for statement in migration.statements:
            assert MARIADB.translate(statement) == statement


def test_mysql_gets_a_collation_it_knows_and_nothing_else_changes() -> None:
    for migration in migrations.available():
        for statement in migration.statements:
            translated = MYSQL.translate(statement)
            assert "nopad" not in translated
            assert translated.replace("utf8mb4_0900_bin", "utf8mb4_nopad_bin") == statement


def test_the_declared_schema_is_in_the_words_of_each_server() -> None:
    def collations(server: Dialect) -> set[str | None]:
        tables = declared.tables(server, prefix="wp_").values()
        return {column.collation for table in tables for column in table.columns.values()}

    assert collations(MARIADB) == {None, "utf8mb4_unicode_520_ci", "utf8mb4_nopad_bin"}
    assert collations(MYSQL) == {None, "utf8mb4_unicode_520_ci", "utf8mb4_0900_bin"}


@pytest.mark.parametrize(
    ("server", "first"),
    [
        (MYSQL, "priority DESC"),
        (MARIADB, "priority DESC"),
        (Dialect("MariaDB", (10, 8, 0)), "priority DESC"),
        (Dialect("MariaDB", (10, 7, 9)), "priority"),
        (Dialect("MariaDB", (10, 6, 0)), "priority"),
    ],
)
def test_descending_parts_are_expected_only_where_the_server_has_them(server: Dialect, first: str) -> None:
    queue = declared.tables(server, prefix="wp_")["wp_novel_story_recount_queue"]
    assert queue.indexes["due"].columns == (first, "next_run_at", "story_id")


@pytest.mark.parametrize("server", [MARIADB, MYSQL], ids=lambda server: server.product)
def test_each_server_gets_its_own_time_limit(server: Dialect) -> None:
    limits = session.Limits(
        statement_seconds=1.5, row_lock_seconds=3, table_lock_seconds=60, idle_transaction_seconds=7
    )
    *_, (sql, parameters) = session.statements(server, limits)
    assert ("max_statement_time" in sql, "max_execution_time" in sql) == (server.is_mariadb, not server.is_mariadb)
    assert parameters == (session.SQL_MODE, 3, 60, *((1.5, 7) if server.is_mariadb else (1500,)))


# -- the claims, against the server ------------------------------------------------------------------------------------


def test_the_collations_the_dialect_names_exist_and_compare_as_it_says(conn: Connection) -> None:
    identifier = conn.dialect.identifier_collation
    text, bytewise = dialect.TEXT_COLLATION, identifier
    assert conn.fetch_one(
        f"SELECT 'Đấu Phá' = 'dau pha' COLLATE {text}, 'abc' = 'Abc' COLLATE {bytewise},"
        f" 'abc' = 'abc ' COLLATE {bytewise}, 'abc' = 'abc' COLLATE {bytewise}"
    ) == (1, 0, 0, 1)


def test_returning_works_where_the_dialect_says_so(conn: Connection) -> None:
    insert = "INSERT INTO wp_novel_genres (slug, name, created_at) VALUES ('a', 'a', NOW()) RETURNING slug"
    if conn.dialect.has_returning:
        assert conn.fetch_one(insert) == ("a",)
    else:
        with pytest.raises(pymysql.err.ProgrammingError):
            conn.fetch_one(insert)


def test_upserts_say_values_which_both_servers_understand(empty_conn: Connection) -> None:
    """A row alias (`AS new`) is MySQL's alone."""
    migrator.migrate(empty_conn, lock_seconds=5, to=1)
    version.record(empty_conn, 4)
    version.record(empty_conn, 5)
    assert version.current(empty_conn) == 5
    if empty_conn.dialect.is_mariadb:
        with pytest.raises(pymysql.err.ProgrammingError):
            empty_conn.execute(
                "INSERT INTO wp_options (option_name, option_value) VALUES ('a', 'b') AS new"
                " ON DUPLICATE KEY UPDATE option_value = new.option_value"
            )
