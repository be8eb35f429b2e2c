import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import pymysql
import pytest

from runtime import ports, settings
from runtime.addresses import DatabaseAddress
from runtime.problems import Problem
from runtime.settings import DatabaseSettings, Settings
from schema import connection, migrator
from schema.connection import Connection
from tests.conftest import DatabaseServer

ADDRESS = DatabaseAddress("db.example", 3306, "anh", "hush", "novel")
GENRE = "INSERT INTO wp_novel_genres (slug, name, created_at) VALUES (%s, %s, NOW())"


def at(address: DatabaseAddress) -> DatabaseSettings:
    return settings.load({"NOVEL_DATABASE_URL": address.url}).database


def problem_of(settings: DatabaseSettings, statement: str = "SELECT 1") -> str:
    """The one line that a person gets, on connecting or on running a statement."""
    with pytest.raises(Problem) as problem, connection.connect(settings) as conn:
        conn.execute(statement)
    text = str(problem.value)
    assert "\n" not in text
    assert settings.address is None or settings.address.password not in text
    return text


# -- errors that a person can mend -------------------------------------------------------------------------------------


def test_no_address() -> None:
    text = problem_of(settings.load({}).database)
    assert text.startswith("NOVEL_DATABASE_URL is not set. Set it to mysql://")
    assert text.endswith("novel up")


def test_no_server(empty_settings: Settings) -> None:
    port = ports.find()
    assert problem_of(at(replace(ADDRESS, host="127.0.0.1", port=port))) == (
        f"no database server answers at 127.0.0.1:{port}. Start it, or correct NOVEL_DATABASE_URL."
    )


def test_no_such_host() -> None:
    assert "no database server answers at nowhere.invalid:3306" in problem_of(
        at(replace(ADDRESS, host="nowhere.invalid"))
    )


def test_wrong_password(database_server: DatabaseServer) -> None:
    text = problem_of(at(replace(database_server.address, password="not this one")))
    assert text.endswith("wrong user or password. Correct NOVEL_DATABASE_URL.")


def test_no_such_database(database_server: DatabaseServer) -> None:
    name = database_server.address.database + "_absent"
    text = problem_of(at(replace(database_server.address, database=name)))
    assert f"there is no database '{name}'" in text
    assert f"CREATE DATABASE `{name}`" in text


@pytest.fixture
def limited_user(database_server: DatabaseServer) -> Iterator[Callable[[str, DatabaseAddress], DatabaseAddress]]:
    """Makes a user with only the given rights on a database (none, when empty)."""
    with database_server.as_root() as root, root.cursor() as cursor:

        def make(rights: str, address: DatabaseAddress) -> DatabaseAddress:
            cursor.execute("CREATE USER 'limited'@'127.0.0.1' IDENTIFIED BY 'narrow-gate'")
            if rights:
                cursor.execute(f"GRANT {rights} ON `{address.database}`.* TO 'limited'@'127.0.0.1'")
            return replace(address, user="limited", password="narrow-gate")

        yield make
        cursor.execute("DROP USER 'limited'@'127.0.0.1'")


def test_a_user_who_may_not_use_the_database(
    limited_user: Callable[[str, DatabaseAddress], DatabaseAddress], empty_conn: Connection
) -> None:
    text = problem_of(at(limited_user("", empty_conn.address)))
    assert f"may not use the database '{empty_conn.address.database}'" in text
    assert "GRANT ALL PRIVILEGES" in text


@pytest.mark.parametrize("statement", ["CREATE TABLE x (id INT)", "INSERT INTO wp_options (option_value) VALUES ('')"])
def test_a_user_who_lacks_a_right(
    limited_user: Callable[[str, DatabaseAddress], DatabaseAddress], empty_conn: Connection, statement: str
) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=1)
    text = problem_of(at(limited_user("SELECT", empty_conn.address)), statement)
    assert "'limited' at 127.0.0.1" in text
    assert "lacks a privilege" in text
    assert "command denied" in text


def test_a_migration_by_a_user_who_may_only_read(
    limited_user: Callable[[str, DatabaseAddress], DatabaseAddress], empty_conn: Connection
) -> None:
    address = limited_user("SELECT", empty_conn.address)
    with (
        connection.connect(at(address)) as conn,
        pytest.raises(Problem, match=r"lacks a privilege \(CREATE command denied"),
    ):
        migrator.migrate(conn, lock_seconds=5)


def test_a_read_only_server(database_server: DatabaseServer, empty_settings: Settings) -> None:
    with database_server.as_root() as root, root.cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = 1")
        try:
            text = problem_of(empty_settings.database, "CREATE TABLE x (id INT)")
        finally:
            cursor.execute("SET GLOBAL read_only = 0")
    assert "is read-only" in text
    assert "SET GLOBAL read_only = 0" in text


def test_a_connection_that_the_server_ends(empty_settings: Settings, empty_conn: Connection) -> None:
    def lose_it() -> None:
        with connection.connect(empty_settings.database) as conn:
            empty_conn.execute("KILL %s", conn.fetch_one("SELECT CONNECTION_ID()") or ())
            conn.fetch_one("SELECT 1")

    with pytest.raises(Problem, match=r"closed the connection\. See its error log"):
        lose_it()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2002, "no database server answers at db.example:3306"),
        (2003, "no database server answers"),
        (2006, "closed the connection"),
        (2013, "closed the connection"),
        (1927, "closed the connection"),
        (1053, "closed the connection"),
        (1045, "the database refuses 'anh' at db.example:3306"),
        (1698, "wrong user or password"),
        (1130, "wrong user or password"),
        (1040, "no free connection (max_connections)"),
        (1205, "waited too long for a table or row that others are using"),
        (1836, "is read-only"),
        (1792, "is read-only"),
    ],
)
def test_an_error_is_explained_by_its_number(number: int, text: str) -> None:
    problem = connection.explain(pymysql.err.OperationalError(number, "as the server says"), ADDRESS)
    assert problem is not None
    assert text in str(problem)
    assert "hush" not in str(problem)


@pytest.mark.parametrize(
    "error",
    [pymysql.err.ProgrammingError(1064, "syntax"), pymysql.err.InterfaceError(0, ""), ValueError("x"), OSError()],
)
def test_what_is_not_a_persons_to_mend_is_not_explained_away(error: Exception) -> None:
    assert connection.explain(error, ADDRESS) is None


def test_a_mistake_in_the_program_stays_an_error(empty_settings: Settings) -> None:
    with pytest.raises(pymysql.err.ProgrammingError), connection.connect(empty_settings.database) as conn:
        conn.execute("SELEC 1")


# -- statements and transactions ---------------------------------------------------------------------------------------


def test_statements_tell_how_many_rows_they_changed_and_rows_come_back(conn: Connection) -> None:
    assert conn.fetch_all("SELECT slug FROM wp_novel_genres") == []
    assert conn.fetch_one("SELECT slug FROM wp_novel_genres") is None
    assert [conn.execute(GENRE, (slug, slug)) for slug in ("a", "b")] == [1, 1]
    assert conn.fetch_all("SELECT slug FROM wp_novel_genres ORDER BY slug") == [("a",), ("b",)]
    assert conn.fetch_one("SELECT slug FROM wp_novel_genres WHERE slug = %s", ("b",)) == ("b",)
    assert conn.execute("DELETE FROM wp_novel_genres") == 2


def test_a_percent_sign_without_parameters_is_a_percent_sign(conn: Connection) -> None:
    assert conn.fetch_one("SELECT 'abc' LIKE '%b%'") == (1,)


def test_values_are_bound_and_never_read_as_sql(conn: Connection) -> None:
    nasty = "'; DROP TABLE wp_novel_genres; -- \\"
    conn.execute(GENRE, ("a", nasty))
    assert conn.fetch_one("SELECT name FROM wp_novel_genres") == (nasty,)


def test_a_transaction_is_all_or_nothing(test_settings: Settings, conn: Connection) -> None:
    def fail() -> None:
        with conn.transaction():
            conn.execute(GENRE, ("a", "a"))
            raise KeyError

    with connection.connect(test_settings.database) as other:
        with pytest.raises(KeyError):
            fail()
        assert other.fetch_all("SELECT slug FROM wp_novel_genres") == []
        with conn.transaction():
            conn.execute(GENRE, ("b", "b"))
            assert other.fetch_all("SELECT slug FROM wp_novel_genres") == []
        assert other.fetch_all("SELECT slug FROM wp_novel_genres") == [("b",)]


def test_outside_a_transaction_each_statement_is_kept_at_once(test_settings: Settings, conn: Connection) -> None:
    conn.execute(GENRE, ("a", "a"))
    with connection.connect(test_settings.database) as other:
        assert other.fetch_all("SELECT slug FROM wp_novel_genres") == [("a",)]


def test_the_connection_is_closed_after_the_block_whatever_happened(empty_settings: Settings) -> None:
    with connection.connect(empty_settings.database) as conn:
        assert conn.raw.open
    assert not conn.raw.open
    with pytest.raises(KeyError), connection.connect(empty_settings.database) as conn:
        raise KeyError
    assert not conn.raw.open
    with connection.connect(empty_settings.database) as conn:
        conn.close()


def test_something_that_accepts_and_says_nothing_is_given_up() -> None:
    def open_one(port: int) -> None:
        with connection.connect(replace(at(replace(ADDRESS, host="127.0.0.1", port=port)), connect_seconds=1)):
            pass

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Problem, match=f"nothing answered at 127.0.0.1:{port} within 1 seconds"):
            open_one(port)
