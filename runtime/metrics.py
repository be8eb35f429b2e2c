"""Prometheus metrics of one process, or of all processes that share `PROMETHEUS_MULTIPROC_DIR`."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    generate_latest,
    start_http_server,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from runtime.problems import Problem

SHARED_DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_FOLDER = "novel-metrics-"
CONTENT_TYPE = CONTENT_TYPE_LATEST

HTTP_REQUESTS = Counter("novel_http_requests_total", "HTTP requests answered", labelnames=("method", "route", "status"))
HTTP_SECONDS = Histogram(
    "novel_http_request_seconds",
    "Time from the first byte of a request to the last of its answer",
    labelnames=("route",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)


class _Given(CollectorRegistry):
    """Metrics that are there already."""

    def __init__(self, given: Sequence[Metric]) -> None:
        super().__init__()
        self._given = given

    def collect(self) -> Iterator[Metric]:
        return iter(self._given)


class _Collector(MultiProcessCollector):
    """A process that hangs or was killed just when it made a file left it empty: that must not hide all the others."""

    def collect(self) -> Iterable[Metric]:
        files = [file for file in Path(self._path).glob("*.db") if _has_content(file)]
        return self.merge(map(str, files))  # type: ignore[no-untyped-call,no-any-return]


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:  # of a process that ended just now
        return False


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Let the processes started in this block add up their metrics, in a folder that is gone after it.

    If our parent has such a folder, it is that one.
    """
    if SHARED_DIRECTORY_VARIABLE in os.environ:
        yield
        return
    _remove_abandoned()
    directory = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
    os.environ[SHARED_DIRECTORY_VARIABLE] = str(directory)
    try:
        yield
    finally:
        del os.environ[SHARED_DIRECTORY_VARIABLE]
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned() -> None:
    """Folders of ours whose process was killed before it could clean up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        pid = folder.name.removeprefix(_FOLDER).partition("-")[0]
        with contextlib.suppress(OSError):
            is_ours = folder.lstat().st_uid == os.geteuid() and not folder.is_symlink()
            if is_ours and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)


def exposition(more: Iterable[Metric] = ()) -> bytes:
    """All metrics in Prometheus's text format, with some that nobody keeps."""
    return generate_latest(_registry()) + generate_latest(_Given(tuple(more)))


def show(host: str, port: int) -> None:
    """Show them at http://host:port/metrics, from a thread of its own, until the process ends."""
    try:
        start_http_server(port, host, registry=_registry())
    except (OSError, UnicodeError) as error:  # the latter of a name that can be no host's
        reason = error.strerror if isinstance(error, OSError) else "That is no host's name"
        raise Problem(f"cannot show metrics at {host}:{port}: {reason}.") from error


def _registry() -> CollectorRegistry:
    if SHARED_DIRECTORY_VARIABLE not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    _Collector(registry)  # type: ignore[no-untyped-call]
    return registry


def forget_process(pid: int) -> None:
    """Drop the gauges of a process that ended, so that they do not count for ever."""
    if SHARED_DIRECTORY_VARIABLE in os.environ:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
