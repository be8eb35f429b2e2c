"""What a private MariaDB and a private Redis have in common: binaries, files only we read, waiting until it answers."""

import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from runtime import children
from runtime.children import Child
from runtime.problems import Problem

EXTRA_PATH = "/usr/sbin:/usr/local/sbin:/usr/local/bin"
# sockaddr_un holds 108 bytes, the closing zero included.
MAX_SOCKET_PATH_BYTES = 107
START_SECONDS = 60.0


def binary(name: str, *, package: str, instead: str) -> str:
    """Where a server's binary is, or what to install."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{EXTRA_PATH}")
    if found:
        return found
    raise Problem(
        f"{name} is not installed. Run: apt-get install --no-install-recommends {package}"
        f" (or set {instead} to use a server you already have)."
    )


def private_directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def remembered_secret(path: Path) -> str:
    """A random secret that is made once and then stays the same."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(36) + "\n")
    return path.read_text(encoding="utf-8").strip()


def socket_path(directory: Path, name: str) -> Path:
    """A path for a Unix socket in the directory, or elsewhere if that would be too long for the kernel."""
    path = directory / name
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    status = directory.stat()
    short = private_directory(Path(f"/tmp/novel-{os.getuid()}-{status.st_dev:x}-{status.st_ino:x}"))  # noqa: S108
    if short.stat().st_uid != os.getuid():
        raise Problem(f"{short} belongs to someone else. Choose a shorter --data-dir.")
    return short / name


def wait_until(answers: Callable[[], bool], child: Child, *, seconds: float = START_SECONDS) -> None:
    """Wait until a server answers, or say why it does not."""
    deadline = time.monotonic() + seconds
    while not answers():
        if child.exit_code() is not None:
            raise Problem(
                f"{child.command.name} ended at its start (exit code {child.exit_code()}):\n{child.last_output()}"
            )
        if time.monotonic() > deadline:
            child.stop()
            raise Problem(f"{child.command.name} did not answer within {seconds:g} seconds:\n{child.last_output()}")
        time.sleep(children.POLL_SECONDS)


def greets(path: Path, *, send: bytes, expect: bytes) -> bool:
    """Whether the server behind a Unix socket answers with these bytes."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(path))
            connection.sendall(send)
            return expect in connection.recv(512)
    except OSError:
        return False
