"""`make bench` as a command: what it prints, writes and returns."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from loadtests import command
from loadtests.bench import measuring, registry
from loadtests.bench.__main__ import bench
from loadtests.bench.case import AnyCase, Bench, Bounded, Case, Reading, Side, Step, Work
from loadtests.bench.measuring import Pace
from loadtests.catalogue.sizes import FULL, QUICK, Sizes
from runtime.problems import Problem
from schema.connection import Connection
from tests.conftest import clean_environ

TINY = ("--quick", "--stories", "50", "--chapters", "100", "--bodies", "10", "--rounds", "1")


def run(directory: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "loadtests.bench", *arguments],
        env=clean_environ(variables),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def url(empty_conn: Connection) -> Iterator[str]:
    """A database beside which the benchmark makes its own."""
    yield empty_conn.address.url
    assert empty_conn.fetch_all("SHOW TABLES") == []
    empty_conn.execute(f"DROP DATABASE IF EXISTS `{empty_conn.address.database}_bench`")


def test_a_run_prints_a_table_writes_json_and_leaves_its_catalogue_for_the_next(tmp_path: Path, url: str) -> None:
    first = run(tmp_path, *TINY, "--only", "point_read", "--json", "out/first.json", NOVEL_DATABASE_URL=url)
    written = json.loads((tmp_path / "out/first.json").read_text())
    assert written["catalogue"] == {"stories": 50, "chapters": 100, "bodies": 10, "seed": 1}
    assert written["quick"] is True
    assert written["server"][0].isdigit()
    (result,) = written["results"]
    assert (result["name"], result["unit"], len(result["rounds"])) == ("point_read", "reads/s", 1)
    assert result["figure"] > 0
    assert result["bare"] > 0
    assert result["met"] is (result["ratio"] >= result["target"])
    assert first.returncode == (0 if result["met"] else 1)  # so small a run may go either way
    (row,) = [line for line in first.stdout.splitlines() if "point_read" in line and "reads/s" in line]
    assert row.split("│")[7].strip() == ("met" if result["met"] else "missed")
    assert f"{result['ratio']:.2f}" in row
    assert first.stdout.endswith("Written to out/first.json.\n")
    assert "Chapters generated: 100 of 100 (100 %)" in first.stderr
    assert "Samples: 2 of 2 (100 %)" in first.stderr

    second = run(
        tmp_path, *TINY, "--only", "bulk_insert", "--only", "list_read", "--json", "out/2.json", NOVEL_DATABASE_URL=url
    )
    assert "Chapters generated" not in second.stderr
    names = [result["name"] for result in json.loads((tmp_path / "out/2.json").read_text())["results"]]
    assert names == ["list_read", "bulk_insert"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"first.json", "2.json"}
    assert "Traceback" not in first.stderr + second.stderr


def test_an_unknown_name_is_answered_with_the_names_there_are(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line == f"bench: there is no case 'nonsense'. The names are: {', '.join(registry.names())}."
    assert {"point_read", "list_read", "bulk_insert"} <= set(registry.names())
    assert list(tmp_path.iterdir()) == []  # nothing was started


def test_a_list_names_every_case_and_runs_none(tmp_path: Path) -> None:
    done = run(tmp_path, "--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [case.name for case in registry.CASES]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("--rounds", "0"), ("--stories", "x"), ("--onyl", "x")])
def test_a_mistyped_option_is_answered_kindly(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


# -- exit codes, with cases whose outcome is certain -----------------------------------------------------


def doing(units: int) -> Side:
    @contextlib.contextmanager
    def side(bench: Bench) -> Iterator[Work]:
        yield lambda: units

    return side


def certain(name: str, *, ours: int, bare: int, target: float | None = 1.0) -> Case:
    return Case(
        name=name,
        title=name,
        unit="times",
        ours=doing(ours),
        bare=doing(bare),
        target=target,
        needs_catalogue=False,
    )


def bounded(name: str, *, at_most: float) -> Bounded:
    async def measure(bench: Bench, *, times: int, step: Step) -> Reading:
        step(times)
        return Reading(figure=30, base=10, notes=("measured three times.",))

    return Bounded(
        name=name, title=name, unit="MB", base_unit="MB", measure=measure, at_most=at_most, times=9, quick_times=2
    )


CERTAIN: list[AnyCase] = [
    certain("certain.met", ours=10**9, bare=1),
    certain("certain.missed", ours=1, bare=10**9),
    certain("certain.information", ours=1, bare=10**9, target=None),
    bounded("bounded.met", at_most=3),
    bounded("bounded.missed", at_most=2.9),
]


@pytest.mark.parametrize(
    ("names", "exit_code", "verdict"),
    [
        (["certain.met"], 0, "Every target is met."),
        (["certain.met", "certain.information"], 0, "Every target is met."),
        (["certain.missed"], 1, "Target missed: certain.missed."),
        (["certain"], 1, "Target missed: certain.missed."),
        (["bounded.met"], 0, "Every target is met."),
        (["certain.met", "bounded"], 1, "Target missed: bounded.missed."),
    ],
)
def test_a_missed_target_fails_the_run(
    names: list[str],
    exit_code: int,
    verdict: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("NOVEL_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("NOVEL_DATABASE_URL", url)
    monkeypatch.setattr(registry, "chosen", partial(registry.chosen, cases=CERTAIN))
    monkeypatch.setattr(measuring, "QUICK", Pace(rounds=1, sample_seconds=0, warm_up_seconds=0))
    only = [word for name in names for word in ("--only", name)]
    assert bench.main([*TINY, *only], prog_name="bench", standalone_mode=False) == exit_code
    said = capsys.readouterr().out
    assert verdict in said
    assert said.endswith("Written to .local/bench/result.json.\n")


# -- choosing cases and sizes ----------------------------------------------------------------------------

CASES = [
    certain("one", ours=1, bare=1),
    certain("group.two.a", ours=1, bare=1),
    certain("group.two.b", ours=1, bare=1),
]


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ([], ["one", "group.two.a", "group.two.b"]),
        (["one"], ["one"]),
        (["group"], ["group.two.a", "group.two.b"]),
        (["group.two"], ["group.two.a", "group.two.b"]),
        (["group.two.b", "one"], ["one", "group.two.b"]),
    ],
)
def test_only_takes_cases_and_groups(only: list[str], names: list[str]) -> None:
    assert [case.name for case in registry.chosen(only, quick=False, cases=CASES)] == names


def test_only_takes_nothing_that_merely_begins_alike() -> None:
    for name in ("on", "group.tw", "GROUP", ""):
        with pytest.raises(Problem, match=r"The names are: group, group\.two, one, group\.two\.a, group\.two\.b\."):
            registry.chosen([name], quick=False, cases=CASES)


def test_a_quick_run_leaves_out_what_is_only_for_information() -> None:
    quick = registry.chosen([], quick=True)
    assert [case.name for case in quick] == [
        "point_read",
        "list_read",
        "bulk_insert",
        "ingest.door",
        "ingest.payload_layout",
        "ingest.loop.json",
        "ingest.memory.json",
        "ingest.memory.growth",
        "queue.pipeline",
        "queue.unchanged",
        "queue.floor",
        "queue.memory",
        "queue.noop",
        "queue.claim",
    ]
    assert all((case.target if isinstance(case, Case) else case.at_most) is not None for case in quick)


def test_names_are_unique() -> None:
    assert len(set(registry.names())) == len(registry.names())


def test_sizes_are_the_usual_ones_unless_asked_otherwise() -> None:
    nothing = {"stories": None, "chapters": None, "bodies": None, "seed": None}
    assert command.sizes(quick=True, **nothing) == QUICK
    assert command.sizes(quick=False, **nothing) == FULL
    assert command.sizes(quick=True, **nothing | {"stories": 10, "seed": 0}) == Sizes(
        10, QUICK.chapters, QUICK.bodies, 0
    )


def test_there_are_no_more_texts_than_chapters() -> None:
    assert command.sizes(quick=True, stories=10, chapters=3, bodies=None, seed=None) == Sizes(10, 3, 3)
