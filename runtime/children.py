"""Child processes: started apart from the terminal, ended with their parent, found again after a crash.

A child gets its own session, so that Ctrl-C reaches the parent alone, which then stops its children in order. The
kernel sends a child SIGTERM when its parent dies, however it dies. Should a child outlive that too, its pid file and
command line betray it at the next start.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import logs
from runtime.problems import Problem
from runtime.shutdown import Stop

log = logs.get(__name__)

POLL_SECONDS = 0.02
LAST_OUTPUT_BYTES = 64 << 10
START_SECONDS = 60.0
SHOWN_LINES = 5
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and how it likes to be stopped."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str] | None = None
    output: Path | None = None
    """Where its output goes; None: to ours."""
    pid_file: Path | None = None
    marker: str = ""
    """A part of the command line that no other program has: tells a leftover from a reused pid."""
    stop_seconds: float = 30.0
    hears: Callable[[], bool] | None = None
    """Whether it can be asked to end right now. If not it is killed, and so has to bear that; None: always."""
    pass_fds: Sequence[int] = ()
    done_codes: frozenset[int] = frozenset()
    """Exit codes with which it has done what it was for, and is not started again."""
    again_codes: frozenset[int] = frozenset()
    """Exit codes with which it wants to be started again: that is no failure."""


class Child:
    """A running command."""

    def __init__(self, command: Command, process: subprocess.Popen[bytes]) -> None:
        self.command = command
        self.process = process
        self.started_at = time.monotonic()
        self._asked_to_stop = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def exit_code(self) -> int | None:
        return self.process.poll()

    def ask_to_stop(self) -> None:
        """Ask it once: a second time would mean "at once"."""
        if not self._asked_to_stop and self.process.poll() is None:
            self._asked_to_stop = True
            self.process.terminate()
            self.process.send_signal(signal.SIGCONT)  # a stopped process would not hear it

    def stop(self) -> None:
        """Ask it to end, and insist after `stop_seconds`."""
        if self.process.poll() is None:
            if not self._asked_to_stop and self.command.hears and not self.command.hears():
                self.process.kill()
            self.ask_to_stop()
            try:
                self.process.wait(self.command.stop_seconds)
            except subprocess.TimeoutExpired:
                log.warning("child.killed", name=self.command.name, after_seconds=self.command.stop_seconds)
                self.process.kill()
                self.process.wait()
        if self.command.pid_file:
            self.command.pid_file.unlink(missing_ok=True)

    def last_output(self, lines: int = 5) -> str:
        if not self.command.output or not self.command.output.exists():
            return ""
        with self.command.output.open("rb") as file:
            file.seek(max(0, self.command.output.stat().st_size - LAST_OUTPUT_BYTES))
            text = file.read().decode("utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])


def start(command: Command) -> Child:
    """Start a command; call it from the main thread, because the kernel ties the child's life to the thread."""
    parent = os.getpid()

    def end_with_parent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    with contextlib.ExitStack() as stack:
        try:
            output = stack.enter_context(command.output.open("ab")) if command.output else None
            process = subprocess.Popen(
                command.argv,
                env=None if command.environ is None else dict(command.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=tuple(command.pass_fds),
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            place = error.filename or command.argv[0]
            raise Problem(f"cannot start {command.name} ({place}): {error.strerror}.") from None
    if command.pid_file:
        try:
            command.pid_file.write_text(f"{process.pid}\n")
        except OSError as error:
            process.kill()
            process.wait()
            raise Problem(f"cannot write {command.pid_file}: {error.strerror}.") from None
    log.debug("child.started", name=command.name, pid=process.pid)
    return Child(command, process)


def wait_until(
    answers: Callable[[], bool], child: Child, *, seconds: float = START_SECONDS, stop: Stop | None = None
) -> None:
    """Wait until a server answers, or say why it does not. Raises Stopped when a stop is asked for before that."""
    deadline = time.monotonic() + seconds
    while not answers():
        if stop:
            stop.check()
        if child.exit_code() is not None:
            raise Problem(f"{child.command.name} ended at its start (exit code {child.exit_code()}):\n{_why(child)}")
        if time.monotonic() > deadline:
            child.stop()
            raise Problem(f"{child.command.name} did not answer within {seconds:g} seconds:\n{_why(child)}")
        time.sleep(POLL_SECONDS)


def _why(child: Child) -> str:
    """Its errors, or else the last that it said."""
    said = child.last_output(50).splitlines()
    return "\n".join([line for line in said if "ERROR" in line][:SHOWN_LINES] or said[-SHOWN_LINES:])


def end_leftover(command: Command) -> bool:
    """Stop a process of an earlier run that still holds our files; says whether there was one."""
    pid = leftover(command)
    if pid is None:
        return False
    log.warning("child.leftover_stopped", name=command.name, pid=pid)
    patience = command.stop_seconds if command.hears is None or command.hears() else 0.0
    deadline = time.monotonic() + patience
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # a stopped process would not hear it
        while leftover(command) == pid and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if leftover(command) == pid:
            os.kill(pid, signal.SIGKILL)
            while leftover(command) == pid:
                time.sleep(POLL_SECONDS)
    return True


def leftover(command: Command) -> int | None:
    """The pid of a process of an earlier run of this very command. A stale pid file names none."""
    if not command.pid_file or not command.marker:
        return None
    try:
        pid = int(command.pid_file.read_text())
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return pid if command.marker in line and state != "Z" else None
