"""Metrics of one process, and of several that share a folder."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import metrics, ports
from runtime.problems import Problem
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


def test_processes_that_are_started_within_a_shared_folder_share_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So `novel up` sees what the processes of its workers count; and the folder stays for whoever made it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with metrics.shared():
        outer = os.environ[metrics.SHARED_DIRECTORY_VARIABLE]
        with metrics.shared():
            assert os.environ[metrics.SHARED_DIRECTORY_VARIABLE] == outer
        assert os.environ[metrics.SHARED_DIRECTORY_VARIABLE] == outer
        assert [str(path) for path in tmp_path.iterdir()] == [outer]
    assert list(tmp_path.iterdir()) == []


def test_metrics_of_all_are_shown_by_a_process_that_counts_nothing_itself(tmp_path: Path) -> None:
    port = ports.find()
    run(COUNT.format(3), tmp_path)
    show = (
        f"from runtime import metrics; metrics.show('127.0.0.1', {port}); import urllib.request;"
        f" print(urllib.request.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
    )
    assert f"{LINE}3.0\n" in run(show, tmp_path)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b", "x" * 64 + ".example"])
def test_an_address_at_which_nothing_can_be_shown_is_a_problem_of_one_line(host: str) -> None:
    with pytest.raises(Problem, match=rf"^cannot show metrics at {host}:9101: [^\n]+\.$") as refused:
        metrics.show(host, 9101)
    assert "None" not in str(refused.value)


def test_a_port_that_is_taken_is_a_problem_of_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Problem, match=rf"^cannot show metrics at 127\.0\.0\.1:{port}: Address already in use\.$"):
            metrics.show("127.0.0.1", port)
