"""Child processes: started apart, ended with their parent, stopped with a deadline, found again after a crash."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime import children
from runtime.children import Child, Command
from runtime.problems import Problem
from tests.conftest import ROOT, clean_environ
from tests.runtime.conftest import LogLines
from tests.runtime.waiting import is_alive, number_in, session_of, wait_for

SLEEP = "import time; time.sleep(600)"
IGNORE_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
TELL_READY = "; from pathlib import Path; Path({!r}).touch(); "

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python script as a child. What still runs in the end is killed."""
    started: list[Child] = []

    def start(script: str, *arguments: str, **options: object) -> Child:
        child = children.start(python(script, *arguments, **options))
        started.append(child)
        return child

    yield start
    for child in started:
        if child.process.poll() is None:
            child.process.kill()
        child.process.wait()


def python(script: str, *arguments: str, **options: object) -> Command:
    return Command("test", (sys.executable, "-c", script, *arguments), **options)  # type: ignore[arg-type]


def ready_then_sleep(script: str, ready: Path) -> str:
    return script + TELL_READY.format(str(ready)) + SLEEP


# -- start ----------------------------------------------------------------------------------------------


def test_a_child_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(start: Start) -> None:
    child = start(SLEEP)
    assert session_of(child.pid) == child.pid
    assert session_of(child.pid) != session_of(os.getpid())


def test_a_child_has_the_environment_it_was_given_and_no_input(start: Start, tmp_path: Path) -> None:
    script = "import os, sys; print(os.environ.get('A'), os.environ.get('HOME'), repr(sys.stdin.read()))"
    child = start(script, environ={"A": "1"}, output=tmp_path / "log")
    assert child.process.wait(30) == 0
    assert (tmp_path / "log").read_text() == "1 None ''\n"


def test_both_outputs_of_a_child_are_added_to_its_log(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier\n")
    child = start("import sys; print('out', flush=True); print('err', file=sys.stderr)", output=log)
    child.process.wait(30)
    assert log.read_text() == "earlier\nout\nerr\n"


def test_a_child_inherits_only_the_descriptors_that_it_is_passed(start: Start, tmp_path: Path) -> None:
    (passed, passed_end), (kept, kept_end) = os.pipe(), os.pipe()
    os.set_inheritable(kept, True)
    script = (
        "import os, sys\n"
        "for fd in map(int, sys.argv[1:]):\n"
        "    try: os.fstat(fd); print('open')\n"
        "    except OSError: print('closed')\n"
    )
    child = start(script, str(passed), str(kept), output=tmp_path / "log", pass_fds=(passed,))
    child.process.wait(30)
    for descriptor in (passed, passed_end, kept, kept_end):
        os.close(descriptor)
    assert (tmp_path / "log").read_text() == "open\nclosed\n"


def test_the_pid_file_names_the_child_and_is_gone_after_its_stop(start: Start, tmp_path: Path) -> None:
    child = start(SLEEP, pid_file=tmp_path / "pid")
    assert (tmp_path / "pid").read_text() == f"{child.pid}\n"
    child.stop()
    assert not (tmp_path / "pid").exists()


def test_a_program_that_is_not_there_is_a_problem_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Problem) as raised:
        children.start(Command("redis", (str(tmp_path / "absent"),)))
    assert str(raised.value) == f"cannot start redis ({tmp_path / 'absent'}): No such file or directory."


def test_a_log_that_cannot_be_written_is_a_problem_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Problem) as raised:
        children.start(python(SLEEP, output=tmp_path / "absent" / "log"))
    assert "\n" not in str(raised.value)
    assert f"({tmp_path / 'absent' / 'log'}): No such file or directory." in str(raised.value)


# -- end ------------------------------------------------------------------------------------------------


def test_the_exit_code_of_a_child_is_known_once_it_ended(start: Start) -> None:
    child = start("raise SystemExit(7)")
    wait_for(lambda: child.exit_code() is not None)
    assert child.exit_code() == 7
    child.stop()


def test_a_child_is_asked_to_end_and_may_end_in_order(start: Start, tmp_path: Path) -> None:
    script = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))"
    child = start(ready_then_sleep(script, tmp_path / "ready"))
    wait_for((tmp_path / "ready").exists)
    child.stop()
    assert child.exit_code() == 5


def test_a_child_that_will_not_end_is_killed_after_the_deadline(
    start: Start, tmp_path: Path, log_lines: LogLines
) -> None:
    child = start(ready_then_sleep(IGNORE_SIGTERM, tmp_path / "ready"), stop_seconds=0.2, pid_file=tmp_path / "pid")
    wait_for((tmp_path / "ready").exists)
    child.stop()
    assert child.exit_code() == -signal.SIGKILL
    assert not (tmp_path / "pid").exists()
    assert log_lines.one("child.killed")["after_seconds"] == 0.2


def test_a_second_stop_does_nothing(start: Start) -> None:
    child = start(SLEEP)
    child.stop()
    child.stop()
    assert child.exit_code() == -signal.SIGTERM


PARENT = """
import sys, time
from pathlib import Path
from runtime import children
from runtime.children import Command
child = children.start(Command("test", (sys.executable, "-c", sys.argv[2])))
Path(sys.argv[1]).write_text(f"{child.pid}\\n")
time.sleep(600)
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "pid"), SLEEP], cwd=ROOT, env=clean_environ({})
    ) as parent:
        try:
            pid = number_in(tmp_path / "pid")
            assert is_alive(pid)
        finally:
            parent.kill()
    wait_for(lambda: not is_alive(pid), what="the child to end")


# -- output ---------------------------------------------------------------------------------------------


def test_the_last_output_is_the_end_of_the_log(start: Start, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree \xff\n\n")
    child = start(SLEEP, output=tmp_path / "log")
    assert child.last_output(2) == "two\nthree \ufffd"
    assert child.last_output() == "one\ntwo\nthree \ufffd"


def test_a_child_without_a_log_has_no_last_output(start: Start, tmp_path: Path) -> None:
    assert start(SLEEP).last_output() == ""
    child = start(SLEEP, output=tmp_path / "log")
    (tmp_path / "log").unlink()
    assert child.last_output() == ""


# -- leftovers of a crash -------------------------------------------------------------------------------


def test_a_process_of_an_earlier_run_is_found_and_ended(start: Start, tmp_path: Path, log_lines: LogLines) -> None:
    child = start(SLEEP, "--mark=ours", pid_file=tmp_path / "pid", marker="--mark=ours")
    assert children.leftover(child.command) == child.pid
    assert children.end_leftover(child.command) is True
    assert child.process.wait(30) == -signal.SIGTERM
    assert log_lines.one("child.leftover_stopped")["pid"] == child.pid
    assert children.end_leftover(child.command) is False


def test_a_leftover_that_will_not_end_is_killed_after_the_deadline(start: Start, tmp_path: Path) -> None:
    child = start(
        ready_then_sleep(IGNORE_SIGTERM, tmp_path / "ready"),
        "--mark=ours",
        pid_file=tmp_path / "pid",
        marker="--mark=ours",
        stop_seconds=0.2,
    )
    wait_for((tmp_path / "ready").exists)
    assert children.end_leftover(child.command) is True
    assert child.process.wait(30) == -signal.SIGKILL


def test_a_foreign_process_with_the_pid_of_a_stale_file_is_left_alone(start: Start, tmp_path: Path) -> None:
    """Pids are used again: after a reboot the file may name anything."""
    foreign = start(SLEEP, "--mark=theirs")
    (tmp_path / "pid").write_text(f"{foreign.pid}\n")
    ours = python(SLEEP, "--mark=ours", pid_file=tmp_path / "pid", marker="--mark=ours")
    assert children.leftover(ours) is None
    assert children.end_leftover(ours) is False
    assert foreign.exit_code() is None


def test_without_a_marker_nothing_is_ever_taken_for_a_leftover(start: Start, tmp_path: Path) -> None:
    foreign = start(SLEEP, pid_file=tmp_path / "pid")
    assert children.end_leftover(foreign.command) is False
    assert foreign.exit_code() is None


@pytest.mark.parametrize("content", ["", "rubbish", "0", "-1", "999999999", "1 2"])
def test_a_pid_file_that_names_no_process_is_no_leftover(content: str, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(content)
    assert children.leftover(python(SLEEP, pid_file=tmp_path / "pid", marker="python")) is None


def test_a_missing_pid_file_is_no_leftover(tmp_path: Path) -> None:
    assert children.leftover(python(SLEEP, pid_file=tmp_path / "pid", marker="python")) is None


def test_a_process_that_ended_but_was_not_waited_for_is_no_leftover(start: Start, tmp_path: Path) -> None:
    child = start("pass", "--mark=ours", pid_file=tmp_path / "pid", marker="--mark=ours")
    wait_for(lambda: not is_alive(child.pid))
    assert children.leftover(replace(child.command)) is None


def children_with(argument: str) -> list[int]:
    """Living children of this process that were started with this argument."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in own if argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def test_a_pid_file_that_cannot_be_written_is_a_problem_and_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "pid").mkdir()
    command = Command("sleeper", ("sleep", "61.4711"), pid_file=tmp_path / "pid")
    with pytest.raises(Problem, match=r"cannot write .*/pid: Is a directory"):
        children.start(command)
    assert not children_with("61.4711")


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    with log_file.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it whole would take all memory
        file.seek(0, 2)
        file.write(b"\nthe end\n")
    child = children.start(Command("true", ("true",), output=log_file))
    child.process.wait()
    assert child.last_output(1) == "the end"


def test_a_stopped_process_hears_that_it_should_end() -> None:
    child = children.start(Command("sleeper", ("sleep", "60"), stop_seconds=600))
    os.kill(child.pid, signal.SIGSTOP)
    child.stop()
    assert child.exit_code() == -signal.SIGTERM


def child_of(script: str, log: Path) -> Child:
    return children.start(Command("redis", (sys.executable, "-c", script), output=log))


def test_a_server_that_answers_is_waited_for(tmp_path: Path) -> None:
    child = child_of(SLEEP, tmp_path / "log")
    answers = [True, False, False]
    children.wait_until(answers.pop, child)
    assert answers == []
    child.stop()


def test_a_server_that_ends_at_its_start_tells_why(tmp_path: Path) -> None:
    child = child_of("print('Address already in use'); raise SystemExit(4)", tmp_path / "log")
    with pytest.raises(Problem) as raised:
        children.wait_until(lambda: False, child)
    assert str(raised.value) == "redis ended at its start (exit code 4):\nAddress already in use"


def test_a_server_that_never_answers_is_stopped_and_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("still thinking\n")
    child = child_of(SLEEP, tmp_path / "log")
    with pytest.raises(Problem) as raised:
        children.wait_until(lambda: False, child, seconds=0.1)
    assert str(raised.value) == "redis did not answer within 0.1 seconds:\nstill thinking"
    assert not is_alive(child.pid)
