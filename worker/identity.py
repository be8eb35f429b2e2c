"""What this process is, and whether another one on this machine still lives."""

import os
import socket
from pathlib import Path

from store.workers import Identity

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_BOOT_ID = "00000000-0000-0000-0000-000000000000"
MAX_HOST_CHARACTERS = 191
_STATE, _START_TIME = 0, 19  # in /proc/PID/stat, counted after the name in parentheses


def mine() -> Identity:
    machine = _read(_MACHINE_ID)
    return Identity(
        # With the machine's id: two machines may have the same name, and one's reboot is not the other's.
        host=f"{socket.gethostname()}/{machine}"[:MAX_HOST_CHARACTERS],
        boot_id=_read(_BOOT_ID) or _NO_BOOT_ID,
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        process_start=_start_of(os.getpid()) or 0,
    )


def is_gone(other: Identity, me: Identity) -> bool:
    """Whether a process is gone for certain. What another machine or container runs cannot be seen from here."""
    if other.host != me.host or _NO_BOOT_ID in (other.boot_id, me.boot_id):
        return False
    if other.boot_id != me.boot_id:
        return True  # the machine was started anew since
    if other.pid_namespace != me.pid_namespace:
        return False
    return _start_of(other.pid) != other.process_start


def _start_of(pid: int) -> int | None:
    """When a living process started; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in "ZX" else int(fields[_START_TIME])


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
