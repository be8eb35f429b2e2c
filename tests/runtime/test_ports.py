"""Ports: free ones are found, and the same one is used again as long as it is free."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import ports, server


@pytest.fixture
def taken() -> Iterator[int]:
    """A port from our range on which someone else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports.find()))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_on_which_someone_listens_is_not_free(taken: int) -> None:
    assert not ports.is_free(taken)


def test_a_port_is_free_again_after_its_listener_closed() -> None:
    with server.listen("127.0.0.1", ports.find()) as other:
        port = other.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = other.accept()
            accepted.close()  # the server's side closes first, and lingers in TIME-WAIT
    assert ports.is_free(port)


def test_a_found_port_can_be_listened_on_and_is_below_the_ephemeral_range() -> None:
    port = ports.find()
    assert ports.LOWEST <= port < ports.HIGHEST
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert lowest_ephemeral >= ports.HIGHEST
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", port))
        ours.listen()


def test_taken_ports_are_passed_over(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ports.find()
    monkeypatch.setattr(random, "sample", lambda _range, _count: [taken, other])
    assert ports.find() == other


def test_without_a_free_port_the_range_is_named(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "sample", lambda _range, _count: [taken])
    with pytest.raises(OSError, match="no free port between 20000 and 32000"):
        ports.find()


def test_a_port_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "port"
    first = ports.remembered(file)
    assert file.read_text() == f"{first}\n"
    assert ports.remembered(file) == first


def test_a_remembered_port_that_someone_took_is_replaced(tmp_path: Path, taken: int) -> None:
    file = tmp_path / "port"
    file.write_text(f"{taken}\n")
    port = ports.remembered(file)
    assert port != taken
    assert file.read_text() == f"{port}\n"


@pytest.mark.parametrize("content", ["", "rubbish", "0", "-1", "80", "70000", "32000", "1e4"])
def test_a_file_with_no_port_of_ours_is_written_anew(tmp_path: Path, content: str) -> None:
    file = tmp_path / "port"
    file.write_text(content)
    port = ports.remembered(file)
    assert ports.LOWEST <= port < ports.HIGHEST
    assert file.read_text() == f"{port}\n"
