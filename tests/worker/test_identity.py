"""Whether another process on this machine still lives."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from store.workers import Identity
from worker import identity

OTHER_BOOT = "11111111-2222-3333-4444-555555555555"
NO_BOOT = "00000000-0000-0000-0000-000000000000"


@contextmanager
def process(code: str = "") -> Iterator[tuple["subprocess.Popen[str]", Identity]]:
    """One that lives until its input ends, and how it would identify itself after running some code."""
    program = (
        "import sys, os\nfrom worker import identity\n"
        f"{code}\nme = identity.mine()\n"
        "print(me.host, me.boot_id, me.pid_namespace, me.pid, me.process_start, sep='\\t', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        host, boot_id, *numbers = child.stdout.readline().rstrip("\n").split("\t")
        yield child, Identity(host, boot_id, *map(int, numbers))


def end(child: "subprocess.Popen[str]") -> None:
    child.communicate()


def is_gone(other: Identity) -> bool:
    return identity.is_gone(other, identity.mine())


def test_a_process_knows_itself_and_is_not_gone() -> None:
    me = identity.mine()
    assert me.pid == os.getpid()
    assert me.process_start > 0
    assert identity.mine() == me
    assert not is_gone(me)


def test_a_process_lives_until_it_ends() -> None:
    with process() as (child, other):
        assert other.pid == child.pid
        assert not is_gone(other)
        end(child)
        assert is_gone(other)


def test_a_process_that_is_dead_but_not_yet_buried_is_gone() -> None:
    with process() as (child, other):
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but still in the table of processes
        assert Path(f"/proc/{child.pid}").exists()
        assert is_gone(other)


def test_a_stopped_process_lives() -> None:
    with process("import threading, signal") as (child, other):
        os.kill(child.pid, 19)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert not is_gone(other)
        os.kill(child.pid, 18)


def test_another_process_with_the_same_pid_is_not_the_one_that_is_gone() -> None:
    with process() as (_, other):
        assert is_gone(replace(other, process_start=other.process_start - 1))


@pytest.mark.parametrize("name", ["a) R 1 (b", "( ) )", "\\n\\t"])
def test_a_process_may_have_any_name(name: str) -> None:
    with process(f"open('/proc/self/comm', 'w').write('{name}')") as (_, other):
        assert not is_gone(other)
        assert is_gone(replace(other, process_start=other.process_start - 1))


def test_a_name_that_is_cut_within_a_letter_does_not_stop_who_looks() -> None:
    with process("open('/proc/self/comm', 'wb').write('công nhân đế bá'.encode())") as (_, other):
        with pytest.raises(UnicodeDecodeError):
            Path(f"/proc/{other.pid}/stat").read_text(encoding="utf-8")
        assert not is_gone(other)


def test_a_process_before_the_last_boot_is_gone() -> None:
    host = f"host/{'a' * 32}"
    me = replace(identity.mine(), host=host)
    assert identity.is_gone(replace(me, boot_id=OTHER_BOOT), me)


def test_what_runs_on_another_machine_is_not_known_to_be_gone() -> None:
    me = identity.mine()
    assert not is_gone(replace(me, host="elsewhere/1", boot_id=OTHER_BOOT, process_start=1))


def test_a_machine_without_an_id_is_not_told_from_another_of_its_name() -> None:
    """As containers often are: another boot may be another machine's."""
    me = replace(identity.mine(), host="worker/")
    assert not identity.is_gone(replace(me, boot_id=OTHER_BOOT), me)
    assert identity.is_gone(replace(me, process_start=me.process_start + 1), me)  # the same boot is the same machine


def test_what_runs_in_another_container_is_not_known_to_be_gone() -> None:
    me = identity.mine()
    assert not is_gone(replace(me, pid_namespace=me.pid_namespace + 1, process_start=1))


@pytest.mark.parametrize("unknown", ["mine", "theirs"])
def test_without_a_boot_id_nobody_is_known_to_be_gone(unknown: str) -> None:
    me = identity.mine()
    other = replace(me, process_start=1)
    if unknown == "mine":
        assert not identity.is_gone(other, replace(me, boot_id=NO_BOOT))
    else:
        assert not identity.is_gone(replace(other, boot_id=NO_BOOT), me)


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_a_process_that_hides_is_not_gone(monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    """Where /proc is mounted with hidepid, it shows nothing of other users' processes, or not even that they are."""
    with process() as (child, other):
        real = Path.read_bytes

        def read_bytes(path: Path) -> bytes:
            if path == Path(f"/proc/{other.pid}/stat"):
                raise error
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        assert not is_gone(other)
        if error is FileNotFoundError:
            end(child)
            assert is_gone(other)
