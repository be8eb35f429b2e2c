import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.alone import alone
from runtime.problems import Problem
from tests.conftest import ROOT

HOLD = """
import signal, sys
from pathlib import Path
from runtime.alone import alone
with alone(Path(sys.argv[1]), otherwise=str):
    print("held", flush=True)
    signal.pause()
"""


def test_the_second_is_told_who_holds_it_and_the_next_gets_it(tmp_path: Path) -> None:
    with (
        alone(tmp_path / "lock", otherwise=str),
        pytest.raises(Problem, match=f"^held by {os.getpid()}$"),
        alone(tmp_path / "lock", otherwise=lambda holder: f"held by {holder}"),
    ):
        pass
    with alone(tmp_path / "lock", otherwise=str):
        pass


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(Problem, match=str(holder.pid)),
            alone(tmp_path / "lock", otherwise=str),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with alone(tmp_path / "lock", otherwise=str):
        pass
