"""Metrics of one process, and of several that share a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import metrics
from tests.conftest import ROOT, clean_environ

COUNT = "from runtime import metrics; metrics.HTTP_REQUESTS.labels('GET', '/it', '200').inc({})"
GAUGE = "import os; from prometheus_client import Gauge; Gauge('g', 'G', multiprocess_mode='livesum').set(1)"
SHOW = "import sys; from runtime import metrics; sys.stdout.buffer.write(metrics.exposition())"
LINE = 'novel_http_requests_total{method="GET",route="/it",status="200"} '


def run(script: str, shared: Path | None = None) -> str:
    environ = clean_environ({metrics.SHARED_DIRECTORY_VARIABLE: str(shared)} if shared else {})
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nimport os; print('pid', os.getpid())"],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pid_of(output: str) -> int:
    return int(output.rpartition("pid ")[2])


def test_a_process_alone_shows_its_own_counts() -> None:
    shown = run(COUNT.format(3) + "\n" + SHOW)
    assert f"{LINE}3.0\n" in shown
    assert "process_resident_memory_bytes" in shown


def test_processes_that_share_a_folder_show_the_sum_of_all(tmp_path: Path) -> None:
    run(COUNT.format(3), tmp_path)
    run(COUNT.format(4), tmp_path)
    assert f"{LINE}7.0\n" in run(SHOW, tmp_path)


def test_a_process_that_was_killed_just_when_it_made_a_file_does_not_hide_the_others(tmp_path: Path) -> None:
    run(COUNT.format(3), tmp_path)
    (tmp_path / "counter_999999.db").touch()
    assert f"{LINE}3.0\n" in run(SHOW, tmp_path)


def test_the_counts_of_a_process_outlive_it_but_its_gauges_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, living = pid_of(run(f"{COUNT.format(3)}\n{GAUGE}", tmp_path)), pid_of(run(GAUGE, tmp_path))
    assert ended != living
    assert "g 2.0\n" in run(SHOW, tmp_path)
    monkeypatch.setenv(metrics.SHARED_DIRECTORY_VARIABLE, str(tmp_path))
    metrics.forget_process(ended)
    shown = run(SHOW, tmp_path)
    assert "g 1.0\n" in shown
    assert f"{LINE}3.0\n" in shown


def test_forgetting_a_process_needs_no_shared_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(metrics.SHARED_DIRECTORY_VARIABLE, raising=False)
    metrics.forget_process(os.getpid())
    assert b"novel_http_requests_total" in metrics.exposition()


def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"novel-metrics-{dead.pid}-x", f"novel-metrics-{os.getpid()}-x", "novel-metrics-of-mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "counter.db").touch()
    with metrics.shared():
        there = {path.name for path in tmp_path.iterdir()}
        assert Path(os.environ[metrics.SHARED_DIRECTORY_VARIABLE]).parent == tmp_path
    assert metrics.SHARED_DIRECTORY_VARIABLE not in os.environ
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"novel-metrics-{os.getpid()}-x", "novel-metrics-of-mine", "other"}
    assert len(there - left) == 1
