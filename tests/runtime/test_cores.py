"""How many cores there are for us: those of the machine, less what a container takes away."""

import os
from pathlib import Path

import pytest

from runtime import cores


@pytest.mark.parametrize(
    ("affinity", "quota", "expected"),
    [
        (8, "max 100000\n", 8),
        (8, "200000 100000\n", 2),
        (8, "150000 100000\n", 2),
        (8, "140000 100000\n", 1),
        (8, "10000 100000\n", 1),
        (2, "800000 100000\n", 2),
        (4, "25000 10000\n", 2),
        (4, None, 4),
        (4, "", 4),
        (4, "nonsense", 4),
    ],
)
def test_a_quota_takes_cores_away_and_never_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, affinity: int, quota: str | None, expected: int
) -> None:
    file = tmp_path / "cpu.max"
    if quota is not None:
        file.write_text(quota)
    monkeypatch.setattr(cores, "_QUOTA", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)))
    assert cores.available() == expected


def test_of_this_machine_there_is_at_least_one() -> None:
    assert 1 <= cores.available() <= (os.cpu_count() or 1)
