from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from runtime.addresses import DatabaseAddress
from schema import provision
from tests.conftest import DatabaseServer

ADDRESS = DatabaseAddress("127.0.0.1", 1, "novel", "a-b_C9", "novel")


def test_every_statement_is_one_line() -> None:
    """That is how the server reads its init file."""
    lines = provision.script(ADDRESS, and_databases_like_it=True).splitlines()
    assert len(lines) == 5
    assert all(line.endswith(";") for line in lines)


def test_an_underscore_in_a_name_is_no_wild_card_in_its_rights() -> None:
    assert r"ON `my\_novel`.* TO" in provision.script(replace(ADDRESS, database="my_novel"))


@pytest.mark.parametrize("value", ["", "a'b", "a`b", "a;b", "a b", "a\nb", "a\\b", "a%b"])
def test_names_that_could_break_out_are_refused(value: str) -> None:
    for address in (replace(ADDRESS, database=value), replace(ADDRESS, user=value), replace(ADDRESS, password=value)):
        with pytest.raises(ValueError, match="letters"):
            provision.script(address)


def test_the_user_has_rights_on_its_databases_and_nothing_else(database_server: DatabaseServer) -> None:
    if database_server.private is None:
        pytest.skip("another's server")
    address = database_server.address
    conn = pymysql.connect(host=address.host, port=address.port, user=address.user, password=address.password)
    with conn, conn.cursor() as cursor:
        for statement in ("CREATE DATABASE elsewhere", "SELECT 1 FROM mysql.user", "CREATE DATABASE novelX"):
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                cursor.execute(statement)
        cursor.execute(f"CREATE TABLE {address.database}.x (id INT)")
        cursor.execute(f"DROP TABLE {address.database}.x")


def test_the_password_is_kept_for_the_owner_only(database_server: DatabaseServer) -> None:
    if database_server.private is None:
        pytest.skip("another's server")
    file: Path = database_server.private.directory / "password"
    assert file.read_text().strip() == database_server.address.password
    assert file.stat().st_mode & 0o077 == 0
