"""A private Redis: started, stopped, killed and started again, wherever its folder is and whoever runs it."""

import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from runtime import children, private_server
from runtime.private_redis import PrivateRedis
from runtime.problems import Problem
from tests.runtime.private import DEEP, NAMELESS, NOBODY, ODD, SPACED, kill, new_folder, run_as, sleeper, started
from tests.runtime.waiting import is_alive, wait_for


@pytest.fixture
def folder() -> Iterator[Path]:
    with new_folder() as folder:
        yield folder


def connect(server: PrivateRedis) -> "redis.Redis":
    return redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0))


def test_it_serves_on_loopback_with_a_password_and_ends_at_the_stop(folder: Path) -> None:
    server = PrivateRedis(folder / "redis")
    with started(server) as child:
        with connect(server) as client:
            assert client.ping()
            assert client.config_get("bind")["bind"] == "127.0.0.1"
            assert client.config_get("appendonly")["appendonly"] == "yes"
        port = int((server.directory / "port").read_text())
        with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        child.stop()
        assert not is_alive(child.pid)
        assert not (server.directory / "child.pid").exists()


def test_its_files_are_ours_alone(folder: Path) -> None:
    server = PrivateRedis(folder / "redis")
    server.prepare()
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    for name in ("server.conf", "password"):
        assert stat.S_IMODE((server.directory / name).stat().st_mode) == 0o600


def test_data_and_address_survive_a_stop(folder: Path) -> None:
    server = PrivateRedis(folder)
    with started(server), connect(server) as client:
        client.set("a", "1")
        url = server.url
    with started(server), connect(server) as client:
        assert client.get("a") == b"1"
    assert server.url == url


def test_after_kill_9_it_starts_again_with_its_data(folder: Path) -> None:
    server = PrivateRedis(folder)
    with started(server) as child:
        with connect(server) as client:
            client.set("a", "1")
            wait_for(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)
        kill(child)
        assert (folder / "child.pid").exists()
        assert server.socket.exists()
        with started(server), connect(server) as client:
            assert client.get("a") == b"1"


def test_a_leftover_of_a_crash_is_ended_before_the_next_start(folder: Path) -> None:
    server = PrivateRedis(folder)
    with started(server) as leftover, started(server) as child:
        assert leftover.exit_code() is not None
        assert child.exit_code() is None
        with connect(server) as client:
            assert client.ping()


def test_a_stale_pid_file_harms_no_foreign_process(folder: Path) -> None:
    server = PrivateRedis(folder)
    with sleeper() as foreign:
        (folder / "child.pid").write_text(f"{foreign.pid}\n")
        (folder / "server.pid").write_text(f"{foreign.pid}\n")
        with started(server), connect(server) as client:
            assert client.ping()
        assert foreign.poll() is None


def test_a_port_that_another_took_is_replaced(folder: Path) -> None:
    server = PrivateRedis(folder)
    server.prepare()
    taken = int((folder / "port").read_text())
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken))
        other.listen()
        with started(server), connect(server) as client:
            assert client.ping()
            assert int((folder / "port").read_text()) != taken


def test_a_port_that_is_taken_after_all_is_told(folder: Path) -> None:
    server = PrivateRedis(folder)
    server.prepare()
    with socket.socket() as other:
        other.bind(("127.0.0.1", int((folder / "port").read_text())))
        other.listen()
        child = children.start(server.command())
        with pytest.raises(Problem, match=r"redis ended at its start \(exit code 1\):\n(?s:.*)Address already in use"):
            server.wait(child)


@pytest.mark.parametrize("name", [SPACED, ODD, DEEP], ids=["spaces", "odd", "deep"])
def test_it_runs_in_a_folder_of_any_name(folder: Path, name: str) -> None:
    server = PrivateRedis(folder / name)
    with started(server) as child, connect(server) as client:
        assert client.set("a", "1")
        assert client.config_get("dir")["dir"] == str(server.directory)
        assert children.leftover(child.command) == child.pid


def test_it_is_waited_for_until_its_data_is_loaded(folder: Path) -> None:
    server = PrivateRedis(folder)
    with started(server), connect(server) as client, client.pipeline(transaction=False) as pipeline:
        for number in range(20_000):
            pipeline.set(f"key{number}", "x")
        pipeline.execute()
    server.prepare()
    command = server.command()
    slow = children.start(replace(command, argv=(*command.argv, "--key-load-delay", "40")))
    try:
        server.wait(slow)
        with connect(server) as client:
            assert client.dbsize() == 20_000
    finally:
        slow.stop()


def test_without_its_binary_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(private_server, "EXTRA_PATH", "/nowhere/else")
    with pytest.raises(Problem, match=r"Run: apt-get install --no-install-recommends redis-server .*NOVEL_REDIS_URL"):
        PrivateRedis(folder).prepare()


START = """
import sys
from pathlib import Path
from runtime import children
from runtime.private_redis import PrivateRedis
server = PrivateRedis(Path(sys.argv[1]))
server.prepare()
child = children.start(server.command())
server.wait(child)
child.stop()
print("served")
"""


@pytest.mark.parametrize("user", [NOBODY, NAMELESS])
def test_it_runs_as_any_user(folder: Path, user: int) -> None:
    folder.chmod(0o777)
    assert run_as(user, START, str(folder / "redis")).endswith("served\n")
