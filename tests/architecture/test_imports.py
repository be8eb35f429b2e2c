"""The arrows of the architecture point down: services → store → schema → runtime; cli composes them all."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAY_IMPORT = {
    "runtime": set(),
    "schema": {"runtime"},
    "store": {"schema", "runtime"},
    "ingest": {"store", "schema", "runtime"},
    "worker": {"store", "schema", "runtime"},
    "readapi": {"store", "schema", "runtime"},
    "admin": {"store", "schema", "runtime"},
    "cli": {"admin", "ingest", "readapi", "worker", "store", "schema", "runtime"},
}
OURS = {*MAY_IMPORT, "tests", "loadtests"}


def python_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported_packages(source: str) -> set[str]:
    """Top-level names of everything a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.add((node.module or "").partition(".")[0])
    return found


def forbidden_imports(package: str, source: str) -> set[str]:
    return (imported_packages(source) & OURS) - MAY_IMPORT[package] - {package}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_is_below_it(package: str) -> None:
    wrong = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in python_files(package)
        for name in forbidden_imports(package, file.read_text())
    }
    assert not wrong


def test_an_arrow_that_points_up_or_sideways_is_seen() -> None:
    assert forbidden_imports("store", "from ingest import door") == {"ingest"}
    assert forbidden_imports("ingest", "def f():\n    import worker.claim") == {"worker"}
    assert not forbidden_imports("cli", "from ingest import door\nimport store.pool")


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_package_init_files_are_empty(package: str) -> None:
    assert (ROOT / package / "__init__.py").read_text() == ""


def test_no_file_is_a_drawer() -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}
    assert not [file for package in MAY_IMPORT for file in python_files(package) if file.name in drawers]


def test_files_stay_short() -> None:
    long = {str(f.relative_to(ROOT)) for p in OURS for f in python_files(p) if len(f.read_text().splitlines()) > 400}
    assert not long
