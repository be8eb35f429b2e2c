"""A private MariaDB: started, stopped, killed and started again, wherever its folder is and whoever runs it."""

import contextlib
import os
import pwd
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from runtime import children, ports, private_server
from runtime.private_mariadb import PrivateMariaDB
from runtime.problems import Problem
from runtime.server import listen
from tests.runtime.private import DEEP, NAMELESS, NOBODY, ODD, SPACED, kill, new_folder, run_as, sleeper, started
from tests.runtime.waiting import is_alive

PROVISIONING = """\
CREATE DATABASE IF NOT EXISTS novel;
CREATE TABLE IF NOT EXISTS novel.starts (id INT AUTO_INCREMENT PRIMARY KEY);
INSERT INTO novel.starts VALUES ();
CREATE OR REPLACE USER novel@127.0.0.1 IDENTIFIED BY 'hush';
GRANT ALL ON novel.* TO novel@127.0.0.1;
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with new_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def new_data() -> Iterator[Path]:
    """A data folder as the first start makes it."""
    with new_folder() as folder:
        mariadb(folder).prepare()
        yield folder / "data"


@pytest.fixture
def set_up(folder: Path, new_data: Path) -> Path:
    """A folder in which the first start is done: setting up takes longer than all the rest of a test."""
    subprocess.run(["cp", "-a", "--sparse=always", new_data, folder / "data"], check=True)
    return folder


def mariadb(directory: Path) -> PrivateMariaDB:
    return PrivateMariaDB(directory, PROVISIONING, buffer_pool_mb=16)


def ask(server: PrivateMariaDB, statement: str) -> Any:
    """The one value of a statement, as the server's administrator, who is whoever runs it."""
    us = pwd.getpwuid(os.geteuid()).pw_name
    connection = pymysql.connect(unix_socket=str(server.socket), user=us, autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
        return row[0] if row else None


def test_it_serves_durably_on_loopback_and_ends_at_the_stop(folder: Path) -> None:
    server = mariadb(folder / "mariadb")
    with started(server) as child:
        assert ask(server, "SELECT @@tx_isolation") == "READ-COMMITTED"
        assert ask(server, "SELECT @@innodb_flush_log_at_trx_commit") == 1
        assert ask(server, "SELECT @@bind_address") == "127.0.0.1"
        assert ask(server, "SELECT @@collation_server") == "utf8mb4_unicode_520_ci"
        assert ask(server, "SELECT @@time_zone") == "+00:00"
        with contextlib.closing(
            pymysql.connect(host="127.0.0.1", port=server.port, user="novel", password="hush", database="novel")
        ):
            pass
        for user in ("root", ""):
            with pytest.raises(pymysql.OperationalError, match="Access denied"):
                pymysql.connect(host="127.0.0.1", port=server.port, user=user)
        child.stop()
        assert not is_alive(child.pid)
        assert not (server.directory / "child.pid").exists()
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    for name in ("server.cnf", "provision.sql"):
        assert stat.S_IMODE((server.directory / name).stat().st_mode) == 0o600


def test_data_and_port_survive_a_stop_and_each_start_provisions(set_up: Path) -> None:
    server = mariadb(set_up)
    with started(server):
        port = server.port
    with started(server):
        assert ask(server, "SELECT COUNT(*) FROM novel.starts") == 2
        assert server.port == port


def test_after_kill_9_it_starts_again_with_all_that_was_committed(set_up: Path) -> None:
    server = mariadb(set_up)
    with started(server) as child:
        ask(server, "CREATE TABLE novel.stories (id INT PRIMARY KEY)")
        ask(server, "INSERT INTO novel.stories VALUES (7)")
        kill(child)
        assert (set_up / "child.pid").exists()
        assert server.socket.exists()
        with started(server):
            assert ask(server, "SELECT id FROM novel.stories") == 7


def test_a_leftover_of_a_crash_is_ended_before_the_next_start(set_up: Path) -> None:
    server = mariadb(set_up)
    with started(server) as leftover, started(server) as child:
        assert leftover.exit_code() == 0  # in order: it may have had work under way
        assert child.exit_code() is None
        assert ask(server, "SELECT COUNT(*) FROM novel.starts") == 2


def test_a_stale_pid_file_harms_no_foreign_process(set_up: Path) -> None:
    server = mariadb(set_up)
    with sleeper() as foreign:
        (set_up / "child.pid").write_text(f"{foreign.pid}\n")
        (set_up / "server.pid").write_text(f"{foreign.pid}\n")
        with started(server):
            assert ask(server, "SELECT 1") == 1
        assert foreign.poll() is None


def test_half_a_set_up_is_begun_anew_and_a_taken_port_replaced(folder: Path) -> None:
    (folder / "data.new" / "mysql").mkdir(parents=True)
    (folder / "data.new" / "ibdata1").write_bytes(b"half")
    server = mariadb(folder)
    with listen("127.0.0.1", ports.find()) as other:
        taken = other.getsockname()[1]
        (folder / "port").write_text(f"{taken}\n")
        with started(server):
            assert ask(server, "SELECT 1") == 1
            assert server.port != taken
    assert not (folder / "data.new").exists()


def test_a_start_leaves_the_temporary_tables_of_other_servers_alone(set_up: Path) -> None:
    """A server that starts empties its folder of temporary tables: it must be its own."""
    server = mariadb(set_up)
    with tempfile.NamedTemporaryFile(prefix="#sql-temptable-", suffix=".MAI") as of_another:
        with started(server):
            assert ask(server, "SELECT @@tmpdir") == f"{server.directory}/tmp"
        assert Path(of_another.name).exists()


def test_why_it_cannot_start_is_told(set_up: Path) -> None:
    server = mariadb(set_up)
    server.prepare()
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))
        other.listen()
        child = children.start(server.command())
        with pytest.raises(Problem, match=r"mariadb ended at its start \(exit code 1\):\n(?s:.*)ERROR"):
            server.wait(child)


@pytest.mark.parametrize("name", [SPACED, ODD, DEEP], ids=["spaces", "odd", "deep"])
def test_it_runs_in_a_folder_of_any_name(folder: Path, name: str) -> None:
    server = mariadb(folder / name)
    with started(server) as child:
        assert ask(server, "SELECT @@datadir") == f"{server.directory}/data/"
        assert children.leftover(child.command) == child.pid


def test_it_belongs_to_the_user_it_runs_as_whatever_the_environment_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `su` or `sudo -E`, USER still names someone else."""
    for variable in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "daemon")
    server = mariadb(folder)
    with started(server) as child:
        assert ask(server, "SELECT SUBSTRING_INDEX(USER(), '@', 1)") == pwd.getpwuid(os.geteuid()).pw_name
        assert Path(f"/proc/{child.pid}").stat().st_uid == os.geteuid()
        assert f"user = {pwd.getpwuid(os.geteuid()).pw_name}\n" in (folder / "server.cnf").read_text()


def test_without_its_binaries_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(private_server, "EXTRA_PATH", "/nowhere/else")
    with pytest.raises(Problem) as raised:
        mariadb(folder).prepare()
    assert str(raised.value) == (
        "mariadbd is not installed. Run: apt-get install --no-install-recommends mariadb-server-core"
        " mariadb-client-core (or set NOVEL_DATABASE_URL to use a server you already have)."
    )


START = """
import sys
from pathlib import Path
from runtime import children
from runtime.private_mariadb import PrivateMariaDB
server = PrivateMariaDB(Path(sys.argv[1]), "", buffer_pool_mb=16)
for _ in range(2):
    server.prepare()
    child = children.start(server.command())
    server.wait(child)
    child.stop()
print("served")
"""


@pytest.mark.parametrize("user", [NOBODY, NAMELESS])
def test_it_runs_as_any_user(folder: Path, user: int) -> None:
    folder.chmod(0o777)
    assert run_as(user, START, str(folder / "mariadb")).endswith("served\n")


@pytest.mark.parametrize("delay_seconds", [0.0, 0.02, 0.035, 0.05, 0.065])
def test_a_stop_during_its_start_ends_it_and_the_next_start_works(set_up: Path, delay_seconds: float) -> None:
    """MariaDB hangs for good when SIGTERM comes before it serves; a stop that waited for it would be killed here."""
    server = mariadb(set_up)
    server.prepare()
    command = replace(server.command(), stop_seconds=600)
    for _ in range(3):
        child = children.start(command)
        time.sleep(delay_seconds)
        child.stop()
        assert child.exit_code() in (0, -signal.SIGKILL, -signal.SIGTERM)
    with started(server):
        assert ask(server, "SELECT 1") == 1
