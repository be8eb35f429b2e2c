"""How results are told: a table for people, JSON for programs."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from loadtests.bench.case import Bench
from loadtests.bench.result import INFORMATION, MET, MISSED, AnyResult, BoundedResult, Result

PLAIN_WIDTH = 118
_COLOURS = {MET: "green", MISSED: "bold red", INFORMATION: "dim"}


def table(results: Sequence[AnyResult]) -> Table:
    shown = Table(header_style="bold", caption_justify="left")
    shown.add_column("case", no_wrap=True)
    for name in ("figure", "bare", "ratio", "noise", "target"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for result in results:
        cells = _bounded_cells(result) if isinstance(result, BoundedResult) else _cells(result)
        shown.add_row(result.case.name, *cells, f"[{_COLOURS[result.verdict]}]{result.verdict}[/]")
    return shown


def show(results: Sequence[AnyResult], console: Console) -> None:
    console.print(table(results))
    for result in results:
        for note in result.reading.notes if isinstance(result, BoundedResult) else ():
            console.print(f"{result.case.name}: {note}", soft_wrap=True)
    missed = [result.case.name for result in results if result.verdict == MISSED]
    if missed:
        console.print(f"Target missed: {', '.join(missed)}.", style="bold red")
    elif any(result.verdict == MET for result in results):
        console.print("Every target is met.", style="green")


def console() -> Console:
    """Standard output; where that is no terminal, wide enough for a whole row."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def figure(value: float) -> str:
    """A number with as many digits as it deserves."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def document(results: Sequence[AnyResult], bench: Bench, *, server: str, at: str, quick: bool) -> dict[str, Any]:
    return {
        "at": at,
        "quick": quick,
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "server": server,
        "catalogue": asdict(bench.sizes),
        "results": [
            _bounded_entry(result) if isinstance(result, BoundedResult) else _entry(result) for result in results
        ],
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write it whole or not at all: a run that breaks off leaves the last result in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    draft.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    draft.replace(path)


def _cells(result: Result) -> tuple[str, ...]:
    unit, target = result.case.unit, result.case.target
    return (
        f"{figure(result.ours)} {unit}/s",
        f"{figure(result.bare)} {unit}/s",
        f"{result.ratio:.2f}",
        f"± {result.noise * 100:.0f} %",
        INFORMATION if target is None else f"≥ {target:.2f}",
    )


def _bounded_cells(result: BoundedResult) -> tuple[str, ...]:
    case, reading = result.case, result.reading
    return (
        f"{figure(reading.figure)} {case.unit}",
        f"{figure(reading.base)} {case.base_unit}",
        f"{result.ratio:.2f}",
        "",
        INFORMATION if case.at_most is None else f"≤ {case.at_most:.2f}",
    )


def _entry(result: Result) -> dict[str, Any]:
    return {
        "name": result.case.name,
        "title": result.case.title,
        "unit": f"{result.case.unit}/s",
        "figure": round(result.ours, 3),
        "bare": round(result.bare, 3),
        "ratio": round(result.ratio, 4),
        "noise": round(result.noise, 4),
        "target": result.case.target,
        "met": None if result.case.target is None else result.verdict == MET,
        "rounds": [
            {"figure": round(one.ours, 3), "bare": round(one.bare, 3), "ratio": round(one.ratio, 4)}
            for one in result.rounds
        ],
    }


def _bounded_entry(result: BoundedResult) -> dict[str, Any]:
    case, reading = result.case, result.reading
    return {
        "name": case.name,
        "title": case.title,
        "unit": case.unit,
        "figure": round(reading.figure, 3),
        "base_unit": case.base_unit,
        "base": round(reading.base, 3),
        "ratio": round(result.ratio, 4),
        "at_most": case.at_most,
        "met": None if case.at_most is None else result.verdict == MET,
        "notes": list(reading.notes),
    }
