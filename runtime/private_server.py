"""What a private MariaDB and a private Redis have in common: binaries, files only we read, waiting until it answers."""

import os
import re
import secrets
import shutil
import socket
from pathlib import Path

from runtime.problems import Problem

EXTRA_PATH = "/usr/sbin:/usr/local/sbin:/usr/local/bin"
# sockaddr_un holds 108 bytes, the closing zero included.
MAX_SOCKET_PATH_BYTES = 107
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
