"""What this process is, and whether another one on this machine still lives."""

import os
import socket
from pathlib import Path

from store.workers import Identity

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_MACHINE_ID = "/"
_NO_BOOT_ID = "00000000-0000-0000-0000-000000000000"
MAX_HOST_CHARACTERS = 191
_STATE, _START_TIME = 0, 19  # in /proc/PID/stat, counted after the name in parentheses
_HIDDEN = 0  # no process starts with the boot itself


def mine() -> Identity:
    machine = _read(_MACHINE_ID)
    return Identity(
        # With the machine's id: two machines may have the same name, and one's reboot is not the other's.
        host=f"{socket.gethostname()}{_NO_MACHINE_ID}{machine}"[:MAX_HOST_CHARACTERS],
        boot_id=_read(_BOOT_ID) or _NO_BOOT_ID,
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        process_start=_start_of(os.getpid()) or _HIDDEN,
    )


def is_gone(other: Identity, me: Identity) -> bool:
    """Whether a process is gone for certain. What another machine or container runs cannot be seen from here."""
    if other.host != me.host or _NO_BOOT_ID in (other.boot_id, me.boot_id):
        return False
    if other.boot_id != me.boot_id:
        # The machine was started anew since; but without its id, it may be another one of the same name.
        return not me.host.endswith(_NO_MACHINE_ID)
    if other.pid_namespace != me.pid_namespace:
        return False
    start = _start_of(other.pid)
    return start is None or start not in (other.process_start, _HIDDEN)


def _start_of(pid: int) -> int | None:
    """When a living process started, or that it lives and hides; None if there is none."""
    try:
        # In bytes: a process may have any name.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        # Where /proc is mounted with hidepid, what belongs to other users is not there.
        return _HIDDEN if _exists(pid) else None
    except PermissionError:
        return _HIDDEN
    return None if fields[_STATE] in b"ZX" else int(fields[_START_TIME])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
