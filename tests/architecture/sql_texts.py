"""Finds SQL in Python source: as constants, and where it does not belong."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

# The start of a statement, strict enough not to take English for SQL.
STATEMENT = re.compile(
    r"""^\s*(
        SELECT\s+[\w@%*(`'_]                 | INSERT\s+(IGNORE\s+)?INTO\b  | UPDATE\s+[`\w{]+\s+SET\b
      | UPDATE\s+JSON_TABLE\b               | DELETE\s+\w+\s+FROM\b
      | DELETE\s+FROM\b                     | REPLACE\s+INTO\b            | CREATE\s+(TABLE|DATABASE|USER|INDEX)\b
      | ALTER\s+(TABLE|USER)\b              | DROP\s+(TABLE|DATABASE)\b   | TRUNCATE\s+TABLE\b
      | SET\s+(SESSION|GLOBAL|NAMES)\b      | SHOW\s+(TABLES|CREATE|PROCESSLIST)\b | LOCK\s+TABLES\b
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Found:
    file: Path
    line: int
    text: str
    constant: str
    """The name it is bound to at module level, in upper case; empty otherwise."""
    is_formatted: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} {self.text.strip()[:60]!r}"


def sql_in(file: Path, source: str | None = None) -> Iterator[Found]:
    tree = ast.parse(source if source is not None else file.read_text())
    constants = {
        id(node.value): target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    inside_f_strings = {id(v) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for v in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside_f_strings:
            text, is_formatted = node.value, False
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
            is_formatted = True
        else:
            continue
        if STATEMENT.match(text):
            yield Found(file, node.lineno, text, constants.get(id(node), ""), is_formatted)
