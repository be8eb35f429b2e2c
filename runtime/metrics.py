"""Prometheus metrics of one process, or of all processes that share `PROMETHEUS_MULTIPROC_DIR`."""

import os

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

SHARED_DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = CONTENT_TYPE_LATEST

HTTP_REQUESTS = Counter("novel_http_requests_total", "HTTP requests answered", labelnames=("method", "route", "status"))
HTTP_SECONDS = Histogram(
    "novel_http_request_seconds",
    "Time from the first byte of a request to the last of its answer",
    labelnames=("route",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)


def exposition() -> bytes:
    """All metrics in Prometheus's text format."""
    if SHARED_DIRECTORY_VARIABLE not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def forget_process(pid: int) -> None:
    """Drop the gauges of a process that ended, so that they do not count for ever."""
    if SHARED_DIRECTORY_VARIABLE in os.environ:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
