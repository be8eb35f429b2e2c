"""Every case there is. A new one is a file in `cases/` and a line here."""

from collections.abc import Sequence

from loadtests.bench.case import AnyCase
from loadtests.bench.cases import (
    bulk_insert,
    driver_choice,
    ingest_door,
    ingest_loop,
    ingest_memory,
    list_read,
    payload_layout,
    point_read,
    queue_claim,
    queue_noop,
    queue_pipeline,
    queue_workers,
)
from runtime.problems import Problem

CASES: list[AnyCase] = [
    point_read.CASE,
    list_read.CASE,
    bulk_insert.CASE,
    *ingest_door.CASES,
    payload_layout.CASE,
    *ingest_loop.CASES,
    *ingest_memory.CASES,
    *queue_pipeline.CASES,
    *queue_workers.CASES,
    *queue_noop.CASES,
    *queue_claim.CASES,
    *driver_choice.CASES,
]


def chosen(only: Sequence[str], *, quick: bool, cases: Sequence[AnyCase] = CASES) -> list[AnyCase]:
    """The cases of these names and groups; without names, all of them, or those of a quick run."""
    if not only:
        return [case for case in cases if case.in_quick or not quick]
    known = names(cases)
    for name in only:
        if name not in known:
            raise Problem(f"there is no case {name!r}. The names are: {', '.join(known)}.")
    return [case for case in cases if case.name in only or not groups(case).isdisjoint(only)]


def names(cases: Sequence[AnyCase] = CASES) -> list[str]:
    """What `--only` takes: the groups, and the cases."""
    every_group = {name: None for case in cases for name in sorted(groups(case))}
    return [*every_group, *(case.name for case in cases)]


def groups(case: AnyCase) -> set[str]:
    """Whatever stands before a dot: `a.b.c` is in `a` and in `a.b`."""
    words = case.name.split(".")
    return {".".join(words[:count]) for count in range(1, len(words))}
