"""`/healthz` (this process lives), `/readyz` (it can do its work), `/metrics`.

A check returns nothing when all is well and raises otherwise. Readiness turns off before a stop, so that a load
balancer looks away first. What a check raised is logged; the public answer only says which check failed.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from prometheus_client import Metric
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runtime import logs, metrics
from runtime.shutdown import Stop

log = logs.get(__name__)

# Somebody asks every few seconds, and gives up soon.
FIGURES_SECONDS = 3.0
_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    probe: Callable[[], Awaitable[None]]
    required: bool = True
    """A service goes on without what is not required; its loss is shown all the same."""
    seconds: float = 3.0
    """What takes longer has failed."""


Figures = Callable[[], Awaitable[Iterable[Metric]]]
"""Metrics that are looked up when somebody asks for them."""


def routes(checks: Sequence[Check], *, stop: Stop, figures: Sequence[Figures] = ()) -> list[Route]:
    async def healthz(request: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(request: Request) -> Response:
        outcomes = await asyncio.gather(*(passes(check) for check in checks))
        ready = not stop.requested and all(
            passed or not check.required for check, passed in zip(checks, outcomes, strict=True)
        )
        status = "stopping" if stop.requested else "ready" if ready else "unready"
        results = {
            check.name: {"ok": passed, "required": check.required}
            for check, passed in zip(checks, outcomes, strict=True)
        }
        return _json({"status": status, "checks": results}, 200 if ready else 503)

    async def show_metrics(request: Request) -> Response:
        looked_up = await asyncio.gather(*map(_looked_up, figures))
        content = metrics.exposition(itertools.chain(*looked_up))
        return Response(content, media_type=metrics.CONTENT_TYPE, headers=_NO_STORE)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", show_metrics)]


async def _looked_up(figures: Figures) -> Iterable[Metric]:
    """The figures, or none of them: a database that is away must not hide what this process knows itself."""
    try:
        async with asyncio.timeout(FIGURES_SECONDS):
            return await figures()
    except Exception as error:  # noqa: BLE001  any failure means the same
        log.warning("metrics.figures_failed", error=repr(error))
        return ()


async def passes(check: Check) -> bool:
    """Whether a check finds all well within its time."""
    try:
        async with asyncio.timeout(check.seconds):
            await check.probe()
    except Exception as error:  # noqa: BLE001  any failure of a probe means the same: not ready
        log.warning("health.check_failed", check=check.name, error=repr(error))
        return False
    return True


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json", headers=_NO_STORE)
