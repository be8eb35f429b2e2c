"""Real processes of ours in tests: started, asked over HTTP, waited for."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime import ports
from tests.conftest import clean_environ, novel_executable

HOST = "127.0.0.1"
ANSWER_SECONDS = 30


def wait_for(condition: Callable[[], object], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def processes_of(directory: Path) -> list[int]:
    """Living processes whose command line or environment names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if str(directory).encode() in text and not zombie:
            found.append(int(entry.name))
    return found


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process of ours stand still for the length of the block, as a hung one does."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A `novel serve` of a test, on a port of its own."""

    def __init__(self, directory: Path, variables: Mapping[str, str], *arguments: str) -> None:
        self.port = ports.find()
        self.output = directory / f"serve-{self.port}.out"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [novel_executable(), "serve", *arguments, "--port", str(self.port)],
                env=clean_environ(dict(variables)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_for(lambda: "Serving " in self.said() or self.process.poll() is not None, seconds=60)
        assert self.process.poll() is None, self.said()

    def said(self) -> str:
        return self.output.read_text()

    def request(self, method: str, path: str, *, headers: Mapping[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            return answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def metric(self, sample: str) -> float:
        """The value of one sample, by its name and labels as they are written; 0 where there is none."""
        metrics = self.get("/metrics")
        assert metrics.status == 200, self.said()
        for line in metrics.body.decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        return 0.0

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=ANSWER_SECONDS)

    def accepts(self) -> bool:
        try:
            self.connect().close()
        except ConnectionRefusedError:
            return False
        return True

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


def answer(response: http.client.HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


@contextmanager
def serving(directory: Path, variables: Mapping[str, str], *arguments: str) -> Iterator[Served]:
    """A `novel serve` that answers while the block runs, and is gone after it, whatever happened."""
    served = Served(directory, variables, *arguments)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            workers = children_of(served.process.pid)
            served.process.kill()
            served.process.wait()
            kill(workers)


def kill(pids: Iterable[int]) -> None:
    """End what should have ended by itself."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
