"""What the documents show is what happens: every `$ ...` line of a console block is run against a running service."""

import re
import shlex
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environ, novel_executable
from tests.flow.test_up import Running

DOCUMENTS = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
BASE_URL = "http://127.0.0.1:8080"

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(document: str) -> list[tuple[str, str]]:
    """Commands of a document, and what it says that they print."""
    found = []
    for block in _BLOCK.findall((ROOT / document).read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output.strip()))
    return found


EXAMPLES = [(document, *example) for document in DOCUMENTS for example in examples(document)]


@pytest.fixture(scope="module")
def running(scratch: Path) -> Iterator[Running]:
    running = Running(scratch / "documents")
    yield running
    running.stop()


def run(command: str, running: Running) -> str:
    program, *arguments = shlex.split(command.replace(BASE_URL, running.ready["base_url"]))
    if program == "curl":  # not there on every machine; of its options only -s has a meaning here
        with urllib.request.urlopen(arguments[-1], timeout=30) as answer:
            return str(answer.read().decode())
    assert program == "novel"
    done = subprocess.run(
        [novel_executable(), *arguments],
        env=clean_environ(
            {"NOVEL_DATABASE_URL": running.ready["database_url"], "NOVEL_REDIS_URL": running.ready["redis_url"]}
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize(("document", "command", "shown"), EXAMPLES)
def test_an_example_does_what_the_document_shows(document: str, command: str, shown: str, running: Running) -> None:
    pattern = ".*?".join(re.escape(part) for part in shown.split("..."))
    said = run(command, running).strip()
    assert re.fullmatch(pattern, said, re.DOTALL), f"{document} shows:\n{shown}\n\n{command} says:\n{said}"
