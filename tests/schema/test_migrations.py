import pytest
from sqlglot import exp

from schema import migrations
from tests.conftest import ROOT


def test_every_file_is_a_migration_and_numbers_have_no_gaps() -> None:
    files = sorted(file.stem for file in (ROOT / "schema" / "sql").iterdir())
    found = migrations.available()
    assert [migration.name for migration in found] == files
    assert [migration.number for migration in found] == list(range(1, len(files) + 1))
    assert [int(migration.name[:4]) for migration in found] == [migration.number for migration in found]
    assert migrations.latest() == len(files)
    assert all(migration.statements for migration in found)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        ("-- only a comment;\n", []),
        ("A;", ["A"]),
        ("A;\nB", ["A", "B"]),
        ("A; \t\n\n-- b;\nC\n  (D);\n", ["A", "C\n  (D)"]),
        ("A DEFAULT ';' B;\nC;\n", ["A DEFAULT ';' B", "C"]),
        (";\n;\n", []),
    ],
)
def test_a_file_is_split_at_semicolons_that_end_a_line(text: str, statements: list[str]) -> None:
    assert migrations.split(text) == statements


@pytest.mark.parametrize(
    "statement", ["DROP TABLE wp_novel_stories", "DELETE FROM wp_options", "UPDATE wp_users SET ID = 1", "SELECT 1"]
)
def test_a_migration_may_only_create_and_alter(statement: str) -> None:
    with pytest.raises(TypeError, match="not a CREATE TABLE or ALTER TABLE"):
        migrations.parse(statement)


STATEMENTS = [
    pytest.param(statement, id=f"{migration.name}-{number}")
    for migration in migrations.available()
    for number, statement in enumerate(migration.statements)
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_may_run_twice(statement: str) -> None:
    tree = migrations.parse(statement)
    if isinstance(tree, exp.Create):
        assert tree.args["kind"] == "TABLE"
        assert tree.args["exists"], "CREATE TABLE IF NOT EXISTS"
        assert statement.endswith("ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci"), (
            "nothing is left to the server's defaults"
        )
    else:
        assert len(tree.args["actions"]) == 1, "an ALTER does one thing"


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_migration_takes_anything_away(statement: str) -> None:
    assert not list(migrations.parse(statement).find_all(exp.Drop, exp.AlterColumn, exp.RenameColumn, exp.AlterRename))
