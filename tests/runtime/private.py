"""Private servers under test: folders on a short path, servers that end with the test, and other users."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import children
from runtime.children import Child
from runtime.private_mariadb import PrivateMariaDB
from runtime.private_redis import PrivateRedis
from tests.conftest import ROOT, clean_environ

SPACED = "a folder with spaces"
ODD = 'it\'s "odd" # 100 % \\new'
DEEP = "/".join(["a folder far down"] * 8)
NOBODY = 65534
NAMELESS = 54321


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """A folder that is deleted at once, and not kept like pytest's: a database fills hundreds of megabytes."""
    folder = Path(tempfile.mkdtemp(prefix="novel-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def started(server: PrivateMariaDB | PrivateRedis) -> Iterator[Child]:
    """Prepare, start and wait; whatever still runs in the end is stopped."""
    server.prepare()
    child = children.start(server.command())
    try:
        server.wait(child)
        yield child
    finally:
        child.stop()
        remove_place(server.socket, server.directory)


def remove_place(path: Path, directory: Path) -> None:
    """Delete the folder elsewhere that holds the socket of a deep folder: only an empty one, and never another."""
    if path.parent != directory:
        assert path.parent.name.startswith(f"novel-{os.getuid()}-")
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def kill(child: Child) -> None:
    """As the kernel does when memory runs out: nothing is cleaned up."""
    child.process.kill()
    child.process.wait()


@contextlib.contextmanager
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is none of ours."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            yield process
        finally:
            process.kill()


def run_as(user: int, script: str, *arguments: str) -> str:
    """Run a Python script as another user, with the environment of ours, USER included. Skips where it cannot."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("needs root and setpriv to become another user")
    become = [setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups", sys.executable]
    environ = clean_environ({"USER": "root", "LOGNAME": "root", "PYTHONDONTWRITEBYTECODE": "1"})
    if subprocess.run([*become, "-c", "import runtime"], cwd=ROOT, env=environ, check=False).returncode:
        pytest.skip("another user cannot read this checkout")
    done = subprocess.run(
        [*become, "-c", script, *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
