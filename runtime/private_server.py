"""What a private MariaDB and a private Redis have in common: binaries, files only we read, waiting until it answers."""

import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from runtime import children
from runtime.children import Child
from runtime.problems import Problem
from runtime.shutdown import Stop

EXTRA_PATH = "/usr/sbin:/usr/local/sbin:/usr/local/bin"
# sockaddr_un holds 108 bytes, the closing zero included.
MAX_SOCKET_PATH_BYTES = 107
START_SECONDS = 60.0
SHOWN_LINES = 5
_SECRET = re.compile(rb"[A-Za-z0-9_-]{32,200}")


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
    draft.unlink(missing_ok=True)
    # Exclusive: in a folder of everybody's, the name may have been guessed and be a link by now.
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def remembered_secret(path: Path) -> str:
    """A random secret that is made once and then stays the same."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(36) + "\n")
    secret = path.read_bytes().strip()
    if not _SECRET.fullmatch(secret):
        raise Problem(f"{path} should hold a secret, but is damaged. Restore it, or delete it to have a new one made.")
    return secret.decode()


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
        time.sleep(children.POLL_SECONDS)


def _why(child: Child) -> str:
    """Its errors, or else the last that it said."""
    said = child.last_output(50).splitlines()
    return "\n".join([line for line in said if "ERROR" in line][:SHOWN_LINES] or said[-SHOWN_LINES:])


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
