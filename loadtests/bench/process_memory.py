"""How much memory a process has in use, as the kernel counts it."""

from pathlib import Path

from runtime.problems import Problem

# Of Linux's /proc/PID/clear_refs: the peak begins anew at what is in use now.
_FORGET_PEAK = "5"


def resident_bytes(pid: int) -> int:
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most that was resident since the process began, or since the peak was forgotten."""
    return _status_bytes(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text(_FORGET_PEAK)
    except OSError as error:
        raise Problem(f"the kernel does not let us watch the memory of process {pid}: {error.strerror}.") from None


def _status_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(value) * 1024
