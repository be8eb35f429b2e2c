"""SQL lives in store/ and schema/ only, as constants that parse and take their values as parameters."""

import re
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from schema import migrations, provision
from tests.architecture.sql_texts import Found, sql_in
from tests.architecture.test_imports import MAY_IMPORT, imported_packages, python_files
from tests.conftest import ROOT

HOMES = ("store", "schema")
# Names that cannot be parameters, each with its reason beside the statement.
FORMATTED_BY_NECESSITY = {"_STATEMENTS", "_MORE", "_DROP"}
# Built from a constant of ours, not from a value.
COLLATION_IN_TEXT = {"_NAMES", "_FOLDING"}

CONSTANTS = [found for package in HOMES for file in python_files(package) for found in sql_in(file)]


def test_there_is_sql_to_check() -> None:
    assert len(CONSTANTS) > 20


@pytest.mark.parametrize("package", sorted(set(MAY_IMPORT) - set(HOMES)))
def test_no_sql_outside_its_homes(package: str) -> None:
    assert not [str(found) for file in python_files(package) for found in sql_in(file)]


@pytest.mark.parametrize("found", CONSTANTS, ids=str)
def test_sql_is_a_constant_that_parses_and_is_parameterised(found: Found) -> None:
    if found.text in ("START TRANSACTION", "COMMIT", "ROLLBACK"):
        return
    assert found.constant, "SQL is an upper-case constant at the top of its module"
    if found.constant in FORMATTED_BY_NECESSITY:
        return
    assert not found.is_formatted or found.constant in COLLATION_IN_TEXT, "values are parameters, not formatted in"
    assert not re.search(r"\bSELECT\s+\*|\bOFFSET\b", found.text, re.IGNORECASE)
    assert "{" not in found.text.replace("{}", "")
    for statement in sqlglot.parse(found.text.replace("{}", "utf8mb4_bin").replace("%s", "?"), read="mysql"):
        # sqlglot keeps what it cannot parse as a Command.
        assert statement is not None
        assert not isinstance(statement, exp.Command)


@pytest.mark.parametrize("package", HOMES)
def test_every_join_of_a_list_of_keys_forces_its_index(package: str) -> None:
    """Of a small table the optimizer would rather read all of it, and an UPDATE would lock every row."""
    joins = re.compile(r"STRAIGHT_JOIN\s+wp_\w+\s+\w+\s+(?!FORCE INDEX)")
    assert not [f"{file}: {found}" for file in python_files(package) for found in joins.findall(file.read_text())]


@pytest.mark.parametrize("migration", migrations.available(), ids=lambda m: m.name)
def test_migrations_parse_and_are_split_as_sqlglot_splits_them(migration: migrations.Migration) -> None:
    text = (ROOT / "schema" / "sql" / f"{migration.name}.sql").read_text()
    assert len([tree for tree in sqlglot.parse(text, read="mysql") if tree]) == len(migration.statements)
    for statement in migration.statements:
        migrations.parse(statement)


@pytest.mark.parametrize("package", sorted(set(MAY_IMPORT) - set(HOMES)))
def test_nobody_else_speaks_to_the_servers(package: str) -> None:
    drivers = {"asyncmy", "pymysql", "redis"}
    assert not [str(file) for file in python_files(package) if imported_packages(file.read_text()) & drivers]


def test_sql_in_a_handler_and_formatted_values_are_seen() -> None:
    source = (
        'QUERY = "SELECT a FROM wp_novel_stories"\ndef f(x):\n    return f"DELETE FROM wp_novel_stories WHERE id = {x}"'
    )
    plain, formatted = sql_in(Path(ROOT / "readapi" / "x.py"), source)
    assert (plain.constant, plain.is_formatted) == ("QUERY", False)
    assert (formatted.constant, formatted.is_formatted) == ("", True)


def test_provisioning_refuses_names_that_could_break_out() -> None:
    from runtime.addresses import DatabaseAddress

    with pytest.raises(ValueError, match="letters"):
        provision.script(DatabaseAddress("127.0.0.1", 1, "novel", "x'; DROP", "novel"))
