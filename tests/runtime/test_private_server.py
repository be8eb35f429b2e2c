"""What private servers have in common: binaries, files only we read, socket paths, waiting until one answers."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import private_server
from runtime.private_server import (
    MAX_SOCKET_PATH_BYTES,
    binary,
    greets,
    private_directory,
    remembered_secret,
    socket_path,
    write_private,
)
from runtime.problems import Problem
from tests.runtime.private import NOBODY, remove_place

SLEEP = "import time; time.sleep(600)"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder whose path is too long for a Unix socket in it."""
    folder = tmp_path / ("x" * 60) / ("y" * 60)
    folder.mkdir(parents=True)
    yield folder
    status = folder.stat()
    remove_place(Path(f"/tmp/novel-{os.getuid()}-{status.st_dev:x}-{status.st_ino:x}/server.sock"), folder)


# -- binaries -------------------------------------------------------------------------------------------


def test_a_binary_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "redis-server"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binary("redis-server", package="redis-server", instead="X") == str(program)


def test_the_folders_of_system_programs_are_searched_too() -> None:
    assert "/usr/sbin" in private_server.EXTRA_PATH.split(":")


def test_a_binary_is_found_where_only_roots_path_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mariadbd"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(private_server, "EXTRA_PATH", f"/nowhere/else:{tmp_path}")
    assert binary("mariadbd", package="mariadb", instead="X") == str(program)


def test_a_missing_binary_says_what_to_install_or_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(private_server, "EXTRA_PATH", "/nowhere/else")
    with pytest.raises(Problem) as raised:
        binary("redis-server", package="redis-server", instead="NOVEL_REDIS_URL")
    assert str(raised.value) == (
        "redis-server is not installed. Run: apt-get install --no-install-recommends redis-server"
        " (or set NOVEL_REDIS_URL to use a server you already have)."
    )


# -- files ----------------------------------------------------------------------------------------------


def test_a_private_folder_is_ours_alone_and_may_be_there_already(tmp_path: Path) -> None:
    folder = private_directory(tmp_path / "a" / "b")
    assert mode(folder) == 0o700
    (folder / "file").touch()
    assert private_directory(folder) == folder
    assert (folder / "file").exists()


def test_a_private_file_is_read_by_us_alone_even_where_it_was_open(tmp_path: Path) -> None:
    file = tmp_path / "server.cnf"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "mật khẩu\n")
    assert file.read_text(encoding="utf-8") == "mật khẩu\n"
    assert mode(file) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["server.cnf"]


def test_a_private_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Who had the old one open still reads all of it."""
    file = tmp_path / "server.cnf"
    write_private(file, "old")
    with file.open() as earlier:
        write_private(file, "new")
        assert earlier.read() == "old"


def test_a_secret_is_made_once_and_is_ours_alone(tmp_path: Path) -> None:
    first = remembered_secret(tmp_path / "password")
    assert len(first) >= 32
    assert mode(tmp_path / "password") == 0o600
    assert remembered_secret(tmp_path / "password") == first
    assert remembered_secret(tmp_path / "other") != first


# -- sockets --------------------------------------------------------------------------------------------


def test_a_socket_is_in_its_folder_when_the_path_is_short_enough(tmp_path: Path) -> None:
    name = "s" * (MAX_SOCKET_PATH_BYTES - len(str(tmp_path)) - 1)
    assert name
    path = socket_path(tmp_path, name)
    assert path == tmp_path / name
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))  # the kernel agrees on the limit


def test_a_socket_of_a_deep_folder_is_elsewhere_and_always_at_the_same_place(deep: Path) -> None:
    path = socket_path(deep, "server.sock")
    assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    assert mode(path.parent) == 0o700
    assert socket_path(deep, "server.sock") == path
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def test_the_limit_counts_bytes_and_not_letters(tmp_path: Path) -> None:
    letters = MAX_SOCKET_PATH_BYTES - len(f"{tmp_path}//server.sock")
    assert letters > 0
    folder = tmp_path / ("đ" * letters)
    folder.mkdir()
    path = socket_path(folder, "server.sock")
    assert path.parent != folder
    remove_place(path, folder)


def test_two_deep_folders_do_not_share_a_place(deep: Path) -> None:
    other = deep.parent / ("z" * 60)
    other.mkdir()
    path = socket_path(other, "server.sock")
    assert path.parent != socket_path(deep, "server.sock").parent
    remove_place(path, other)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_a_place_that_belongs_to_someone_else_is_refused(deep: Path) -> None:
    place = socket_path(deep, "server.sock").parent
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(Problem, match=r"belongs to someone else\. Choose a shorter --data-dir\."):
        socket_path(deep, "server.sock")


# -- greeting --------------------------------------------------------------------------------------------


def test_a_missing_or_deaf_socket_does_not_greet(tmp_path: Path) -> None:
    assert not greets(tmp_path / "absent", send=b"", expect=b"")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))  # and nobody listens
        assert not greets(tmp_path / "s", send=b"", expect=b"")


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"\xff" * 40, b"a" * 40 + b"\n" + b"b" * 40])
def test_a_damaged_secret_is_named_and_never_used(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(Problem, match="secret should hold a secret, but is damaged"):
        private_server.remembered_secret(path)


def test_a_link_where_the_draft_would_be_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f"ready.{os.getpid()}.new").symlink_to(victim)
    private_server.write_private(tmp_path / "ready", "text")
    assert victim.read_text() == "mine"
    assert (tmp_path / "ready").read_text() == "text"
