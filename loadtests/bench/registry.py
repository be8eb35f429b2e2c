"""Every case there is. A new one is a file in `cases/` and a line here."""

from collections.abc import Sequence

from loadtests.bench.case import Case
from loadtests.bench.cases import bulk_insert, driver_choice, list_read, point_read
from runtime.problems import Problem

CASES: list[Case] = [
    point_read.CASE,
    list_read.CASE,
    bulk_insert.CASE,
    *driver_choice.CASES,
]


def chosen(only: Sequence[str], *, quick: bool, cases: Sequence[Case] = CASES) -> list[Case]:
    """The cases of these names and groups; without names, all of them, or those of a quick run."""
    if not only:
        return [case for case in cases if case.in_quick or not quick]
    known = names(cases)
    for name in only:
        if name not in known:
            raise Problem(f"there is no case {name!r}. The names are: {', '.join(known)}.")
    return [case for case in cases if case.name in only or group(case) in only]


def names(cases: Sequence[Case] = CASES) -> list[str]:
    """What `--only` takes: the groups, and the cases."""
    groups = dict.fromkeys(name for case in cases if (name := group(case)))
    return [*groups, *(case.name for case in cases)]


def group(case: Case) -> str:
    return case.name.rpartition(".")[0].partition(".")[0]
