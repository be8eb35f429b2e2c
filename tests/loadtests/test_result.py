"""Figures and verdicts: pure."""

import contextlib
import io
from dataclasses import replace

import pytest
from rich.console import Console

from loadtests.bench import report
from loadtests.bench.case import Bench, Bounded, Case, Reading, Step
from loadtests.bench.result import INFORMATION, MET, MISSED, AnyResult, BoundedResult, Result, Round
from loadtests.catalogue.sizes import QUICK
from runtime import settings

CASE = Case(
    name="group.case",
    title="A case",
    unit="reads",
    ours=lambda bench: contextlib.nullcontext(lambda: 1),
    bare=lambda bench: contextlib.nullcontext(lambda: 1),
    target=0.8,
)


def result(*rounds: tuple[float, float], target: float | None = 0.8) -> Result:
    return Result(replace(CASE, target=target), tuple(Round(ours=ours, bare=bare) for ours, bare in rounds))


@pytest.mark.parametrize(
    ("ours", "target", "verdict"),
    [
        (81, 0.8, MET),
        (80, 0.8, MET),
        (79.9, 0.8, MISSED),
        (120, 1.0, MET),
        (1, None, INFORMATION),
    ],
)
def test_a_target_is_met_from_its_value_on(ours: float, target: float | None, verdict: str) -> None:
    assert result((ours, 100), target=target).verdict == verdict


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # The speed of the machine changed between rounds: medians of the sides would compare different moments.
    measured = result((50, 100), (90, 90), (40, 20))
    assert measured.ratio == pytest.approx(1.0)
    assert (measured.ours, measured.bare) == (50, 90)
    assert measured.verdict == MET


def test_one_round_that_went_wrong_does_not_decide() -> None:
    assert result((90, 100), (1, 100), (90, 100)).verdict == MET
    assert result((70, 100), (900, 100), (70, 100)).verdict == MISSED


def test_noise_is_half_the_spread() -> None:
    assert result((90, 100), (100, 100), (110, 100)).noise == pytest.approx(0.1)
    assert result((90, 100)).noise == 0


def document(*results: AnyResult) -> list[dict[str, object]]:
    bench = Bench(settings.load({}), QUICK)
    found: list[dict[str, object]] = report.document(results, bench, server="11.8", at="now", quick=True)["results"]
    return found


def test_the_document_has_every_round() -> None:
    (entry,) = document(result((90, 100), (80, 100)))
    assert entry == {
        "name": "group.case",
        "title": "A case",
        "unit": "reads/s",
        "figure": 85.0,
        "bare": 100.0,
        "ratio": 0.85,
        "noise": pytest.approx(0.0588),
        "target": 0.8,
        "met": True,
        "rounds": [
            {"figure": 90.0, "bare": 100.0, "ratio": 0.9},
            {"figure": 80.0, "bare": 100.0, "ratio": 0.8},
        ],
    }


def test_the_document_tells_met_missed_and_information_apart() -> None:
    entries = document(result((9, 10)), result((1, 10)), result((1, 10), target=None))
    assert [entry["met"] for entry in entries] == [True, False, None]


def shown(*results: AnyResult) -> str:
    output = io.StringIO()
    report.show(results, Console(file=output, width=report.PLAIN_WIDTH))
    return output.getvalue()


def test_the_table_shows_figure_bare_ratio_target_and_verdict() -> None:
    text = shown(result((1_234_567, 1_000_000)), result((1, 10)), result((1, 10), target=None))
    assert all(name in text for name in ("case", "figure", "bare", "ratio", "noise", "target", "verdict"))
    assert "1,234,567 reads/s" in text
    assert "≥ 0.80" in text
    for verdict in (MET, MISSED, INFORMATION):
        assert f"{verdict} " in text
    assert text.endswith("Target missed: group.case.\n")


def test_without_a_miss_the_table_ends_well() -> None:
    assert shown(result((9, 10))).endswith("Every target is met.\n")
    assert "target" not in shown(result((9, 10), target=None)).splitlines()[-1]


@pytest.mark.parametrize(("value", "text"), [(1234.5, "1,234"), (100, "100"), (12.345, "12.3"), (0.01234, "0.0123")])
def test_a_figure_has_the_digits_it_deserves(value: float, text: str) -> None:
    assert report.figure(value) == text


# -- figures that have a bound ---------------------------------------------------------------------------


async def never(bench: Bench, *, times: int, step: Step) -> Reading:
    raise AssertionError("nothing is measured here")


def bounded(figure: float, base: float, *, at_most: float | None = 6.0, notes: tuple[str, ...] = ()) -> BoundedResult:
    case = Bounded(
        name="group.memory",
        title="Memory",
        unit="MB",
        base_unit="MB",
        measure=never,
        at_most=at_most,
        times=1,
        quick_times=1,
    )
    return BoundedResult(case, Reading(figure, base, notes))


@pytest.mark.parametrize(
    ("figure", "at_most", "verdict"),
    [(60, 6.0, MET), (60.1, 6.0, MISSED), (-5, 1.0, MET), (0, 0.0, MET), (1, 0.0, MISSED), (1000, None, INFORMATION)],
)
def test_a_bound_is_kept_up_to_its_value(figure: float, at_most: float | None, verdict: str) -> None:
    assert bounded(figure, 10, at_most=at_most).verdict == verdict


def test_a_bounded_figure_is_a_row_of_the_same_table_and_its_notes_follow() -> None:
    note = "a sentence that is not broken, however long it is, because a program may look for it, and so on to the end."
    text = shown(result((9, 10)), bounded(72.5, 12, notes=(note,)))
    (row,) = [line for line in text.splitlines() if "│ group.memory" in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        *("group.memory", "72.5 MB", "12 MB", "6.04", "", "≤ 6.00", "missed")
    ]
    assert text.splitlines()[-2:] == [f"group.memory: {note}", "Target missed: group.memory."]


def test_the_document_has_a_bounded_figure_with_its_base_and_notes() -> None:
    (entry,) = document(bounded(30, 12.5, notes=("a note.",)))
    assert entry == {
        "name": "group.memory",
        "title": "Memory",
        "unit": "MB",
        "figure": 30.0,
        "base_unit": "MB",
        "base": 12.5,
        "ratio": 2.4,
        "at_most": 6.0,
        "met": True,
        "notes": ["a note."],
    }
