"""The supervisor: what dies is started again, with growing pauses; the rest goes on; a stop stops everything."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime import supervisor
from runtime.children import Child, Command
from runtime.problems import Problem
from runtime.shutdown import Stop
from runtime.supervisor import Supervisor, restart_delay
from tests.runtime.conftest import LogLines
from tests.runtime.waiting import is_alive, wait_for

SLEEP = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "FIRST_DELAY_SECONDS", 0.01)


def python(name: str, script: str = SLEEP, **options: object) -> Command:
    return Command(name, (sys.executable, "-c", script), **options)  # type: ignore[arg-type]


class Watched:
    """A supervisor, and what it started. The test plays the person at the keyboard in a thread."""

    def __init__(self) -> None:
        self.stop = Stop()
        self.supervisor = Supervisor(self.stop)
        self.made: list[str] = []

    def add(self, command: Command) -> Child:
        def make() -> Command:
            self.made.append(command.name)
            return command

        return self.supervisor.add(make)

    def child(self, name: str) -> Child:
        return next(p.child for p in self.supervisor._posts if p.child and p.child.command.name == name)

    def run(self, play: Callable[[], None]) -> None:
        """Supervise until the play is over."""
        failures: list[BaseException] = []

        def act() -> None:
            try:
                play()
            except BaseException as failure:  # noqa: BLE001  raised again below
                failures.append(failure)
            finally:
                self.stop.request("end of the play")

        actor = threading.Thread(target=act)
        actor.start()
        self.supervisor.run()
        actor.join()
        for failure in failures:
            raise failure


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    for post in watched.supervisor._posts:
        if post.child:
            with contextlib.suppress(ProcessLookupError):
                post.child.process.kill()
            post.child.process.wait()


def restarted(lines: LogLines, name: str) -> list[int]:
    return [line["pid"] for line in lines.of("child.restarted") if line["name"] == name]


def test_a_killed_child_is_started_again_and_the_others_go_on(watched: Watched, log_lines: LogLines) -> None:
    database, api = watched.add(python("database")), watched.add(python("api"))

    def play() -> None:
        os.kill(api.pid, signal.SIGKILL)
        wait_for(lambda: restarted(log_lines, "api"))
        assert is_alive(restarted(log_lines, "api")[0])

    watched.run(play)
    assert watched.child("database") is database
    assert database.exit_code() is None
    assert watched.child("api").pid != api.pid
    died = log_lines.one("child.died")
    assert (died["name"], died["pid"], died["exit_code"]) == ("api", api.pid, -signal.SIGKILL)
    assert watched.made == ["database", "api", "api"]


def test_each_of_several_that_die_together_comes_back(watched: Watched, log_lines: LogLines) -> None:
    both = [watched.add(python(name)) for name in ("a", "b")]

    def play() -> None:
        for child in both:
            os.kill(child.pid, signal.SIGKILL)
        wait_for(lambda: restarted(log_lines, "a") and restarted(log_lines, "b"))

    watched.run(play)


def test_a_child_that_keeps_dying_is_started_ever_more_rarely_and_says_why(
    watched: Watched, log_lines: LogLines, tmp_path: Path
) -> None:
    watched.add(python("api", "print('no database'); raise SystemExit(3)", output=tmp_path / "log"))
    watched.run(lambda: wait_for(lambda: len(log_lines.of("child.died")) >= 4))
    died = log_lines.of("child.died")[:4]
    assert [line["restart_in_seconds"] for line in died] == [0.01, 0.02, 0.04, 0.08]
    assert {line["exit_code"] for line in died} == {3}
    assert died[0]["last_output"] == "no database"


def test_pauses_double_up_to_a_limit() -> None:
    assert [restart_delay(deaths) for deaths in (0, 1, 2, 3)] == [0.01, 0.01, 0.02, 0.04]
    assert restart_delay(50) == supervisor.MAX_DELAY_SECONDS


def test_a_child_that_dies_for_days_does_not_break_the_supervisor() -> None:
    assert restart_delay(100_000) == supervisor.MAX_DELAY_SECONDS


def test_a_death_after_a_steady_life_begins_with_the_shortest_pause(
    watched: Watched, log_lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STEADY_SECONDS", 0.0)
    watched.add(python("api", "raise SystemExit(3)"))
    watched.run(lambda: wait_for(lambda: len(log_lines.of("child.died")) >= 3))
    assert {line["restart_in_seconds"] for line in log_lines.of("child.died")} == {0.01}


def test_a_child_that_cannot_be_started_is_tried_again_later(
    watched: Watched, log_lines: LogLines, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.symlink_to(sys.executable)
    api = watched.add(Command("api", (str(program), "-c", SLEEP)))
    database = watched.add(python("database"))

    def play() -> None:
        program.unlink()
        os.kill(api.pid, signal.SIGKILL)
        wait_for(lambda: len(log_lines.of("child.not_started")) >= 2)
        program.symlink_to(sys.executable)
        wait_for(lambda: restarted(log_lines, "api"))

    watched.run(play)
    assert str(program) in log_lines.of("child.not_started")[0]["error"]
    assert database.exit_code() is None


def test_a_log_folder_that_vanished_does_not_end_the_supervision(
    watched: Watched, log_lines: LogLines, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    api = watched.add(python("api", output=folder / "api.log"))

    def play() -> None:
        (folder / "api.log").unlink()
        folder.rmdir()
        os.kill(api.pid, signal.SIGKILL)
        wait_for(lambda: log_lines.of("child.not_started"))
        folder.mkdir()
        wait_for(lambda: restarted(log_lines, "api"))

    watched.run(play)


def test_a_stop_stops_everything_in_the_reverse_order_of_the_start(watched: Watched, log_lines: LogLines) -> None:
    started = [watched.add(python(name)) for name in ("database", "redis", "api")]
    watched.stop.request("SIGTERM")
    watched.supervisor.run()
    watched.supervisor.stop_all()
    assert [line["name"] for line in log_lines.of("child.stopping")] == ["api", "redis", "database"]
    assert not any(is_alive(child.pid) for child in started)
    assert log_lines.of("child.died") == []


def test_a_child_that_ignores_the_stop_is_killed_and_the_rest_still_stopped(
    watched: Watched, tmp_path: Path, log_lines: LogLines
) -> None:
    stubborn = (
        "import signal, time; from pathlib import Path; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"Path({str(tmp_path / 'ready')!r}).touch(); time.sleep(600)"
    )
    database = watched.add(python("database"))
    api = watched.add(python("api", stubborn, stop_seconds=0.2))
    wait_for((tmp_path / "ready").exists)
    watched.supervisor.stop_all()
    assert api.exit_code() == -signal.SIGKILL
    assert database.exit_code() == -signal.SIGTERM
    assert log_lines.one("child.killed")["name"] == "api"


def test_a_child_that_waits_for_its_restart_is_not_started_by_a_stop(
    watched: Watched, log_lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY_SECONDS", 600.0)
    monkeypatch.setattr(supervisor, "MAX_DELAY_SECONDS", 600.0)
    api = watched.add(python("api"))

    def play() -> None:
        os.kill(api.pid, signal.SIGKILL)
        wait_for(lambda: log_lines.of("child.died"))

    watched.run(play)
    watched.supervisor.stop_all()
    assert watched.made == ["api"]


def test_what_cannot_start_at_first_is_told_at_once(watched: Watched, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="cannot start api"):
        watched.add(Command("api", (str(tmp_path / "absent"),)))
    watched.supervisor.stop_all()


def test_a_child_that_has_done_what_it_was_for_is_not_started_again(watched: Watched, log_lines: LogLines) -> None:
    watched.add(python("drain", "", done_codes=frozenset({0})))
    api = watched.add(python("api"))
    watched.run(lambda: wait_for(lambda: log_lines.of("child.done")))
    assert watched.made == ["drain", "api"]
    assert api.exit_code() is None
    assert log_lines.of("child.died") == []


def test_the_supervision_ends_once_every_child_has_done_what_it_was_for(watched: Watched) -> None:
    for name in ("a", "b"):
        watched.add(python(name, "", done_codes=frozenset({0})))
    watched.supervisor.run()  # nobody asks it to stop
    assert not watched.stop.requested


def test_one_that_fails_before_it_is_done_is_started_again(
    watched: Watched, log_lines: LogLines, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    script = f"from pathlib import Path; mark = Path({str(mark)!r}); mark.exists() or (mark.touch(), exit(3))"
    watched.add(python("drain", script, done_codes=frozenset({0})))
    watched.supervisor.run()
    assert watched.made == ["drain", "drain"]
    assert log_lines.one("child.died")["exit_code"] == 3


def test_an_exit_code_is_an_end_only_where_the_command_says_so(watched: Watched, log_lines: LogLines) -> None:
    watched.add(python("api", ""))
    watched.run(lambda: wait_for(lambda: len(log_lines.of("child.restarted")) >= 2))
    assert {line["exit_code"] for line in log_lines.of("child.died")} == {0}


def test_one_that_wants_to_be_started_again_is_and_that_is_no_error(watched: Watched, log_lines: LogLines) -> None:
    watched.add(python("worker", "raise SystemExit(75)", again_codes=frozenset({75}), done_codes=frozenset({0})))
    watched.run(lambda: wait_for(lambda: len(log_lines.of("child.ended")) >= 3))
    assert log_lines.of("child.died") == []
    assert {line["level"] for line in log_lines.of("child.ended")} == {"info"}
    # One that always wants so at once is not started as fast as the machine can.
    assert log_lines.of("child.ended")[2]["restart_in_seconds"] > log_lines.of("child.ended")[0]["restart_in_seconds"]


def test_children_can_be_asked_to_stop_all_at_once(watched: Watched, tmp_path: Path) -> None:
    """Each ends only after the other has been asked."""
    script = (
        "import signal, sys, time; from pathlib import Path; here, other = map(Path, sys.argv[1:])\n"
        "def asked(*_):\n"
        "    here.touch()\n"
        "    while not other.exists(): time.sleep(0.01)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, asked); Path(f'{here}-ready').touch()\n"
        "while True: time.sleep(1)"
    )
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    started = [
        watched.add(Command(mine, (sys.executable, "-c", script, mine, other), stop_seconds=30))
        for mine, other in (paths, reversed(paths))
    ]
    wait_for(lambda: all(Path(f"{path}-ready").exists() for path in paths))
    watched.supervisor.stop_all(at_once=True)
    assert [child.exit_code() for child in started] == [0, 0]
