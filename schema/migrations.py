"""The migrations: forward-only SQL files in `sql/`, `0001_name.sql` and on, one idea each.

A statement ends with a semicolon at the end of a line. Tables are made with IF NOT EXISTS; an ALTER does one thing
(ADD COLUMN or ADD INDEX), so that the runner can see whether it is done already. So every file may run twice, and a
migration that broke off in the middle is finished by running it again.
"""

import functools
import re
from dataclasses import dataclass
from importlib import resources

import sqlglot
from sqlglot import exp

_FILE = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    statements: tuple[str, ...]


@functools.cache
def available() -> tuple[Migration, ...]:
    """All migrations in order."""
    files = resources.files("schema") / "sql"
    found = []
    for file in sorted(files.iterdir(), key=lambda file: file.name):
        if match := _FILE.fullmatch(file.name):
            text = file.read_text(encoding="utf-8")
            found.append(Migration(int(match[1]), file.name.removesuffix(".sql"), tuple(split(text))))
    return tuple(found)


def latest() -> int:
    return available()[-1].number


def split(text: str) -> list[str]:
    """The statements of a file, without comments."""
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return [statement.strip() for statement in re.split(r";[ \t]*(?:\n|$)", code) if statement.strip()]


def parse(statement: str) -> exp.Create | exp.Alter:
    """A statement as a tree; only the two kinds that migrations are made of."""
    tree = sqlglot.parse_one(statement, read="mysql")
    if not isinstance(tree, exp.Create | exp.Alter):
        raise TypeError(f"not a CREATE TABLE or ALTER TABLE: {statement[:80]}")
    return tree
