"""`/healthz` says that the process lives, `/readyz` that it can work, `/metrics` what it did."""

import asyncio

import pytest

from runtime.health import Check
from runtime.shutdown import Stop
from tests.runtime.conftest import LogLines
from tests.runtime.serving import application, client

pytestmark = pytest.mark.anyio


async def fine() -> None:
    return None


async def broken() -> None:
    raise ConnectionRefusedError("db.internal refused user novel")


async def endless() -> None:
    await asyncio.Event().wait()


async def test_a_process_lives_even_when_nothing_it_needs_does() -> None:
    answer = await client(application(checks=[Check("database", broken)])).get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready_when_every_check_passes() -> None:
    answer = await client(application(checks=[Check("database", fine), Check("redis", fine, required=False)])).get(
        "/readyz"
    )
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "checks": {"database": {"ok": True, "required": True}, "redis": {"ok": True, "required": False}},
    }


async def test_unready_when_a_required_check_fails_and_the_answer_keeps_the_reason_inside(log_lines: LogLines) -> None:
    answer = await client(application(checks=[Check("schema", fine), Check("database", broken)])).get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "unready",
        "checks": {"schema": {"ok": True, "required": True}, "database": {"ok": False, "required": True}},
    }
    line = log_lines.one("health.check_failed")
    assert line["check"] == "database"
    assert "db.internal refused" in line["error"]


async def test_ready_without_what_is_not_required_but_its_loss_is_shown() -> None:
    answer = await client(application(checks=[Check("redis", broken, required=False)])).get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["checks"] == {"redis": {"ok": False, "required": False}}


async def test_a_check_that_takes_too_long_has_failed(log_lines: LogLines) -> None:
    checks = [Check("database", endless, seconds=0.01), Check("schema", fine, seconds=60)]
    async with asyncio.timeout(30):
        answer = await client(application(checks=checks)).get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"]["ok"] is False
    assert answer.json()["checks"]["schema"]["ok"] is True
    assert "TimeoutError" in log_lines.one("health.check_failed")["error"]


async def test_checks_run_side_by_side() -> None:
    """Each waits for the other: one after the other they would never end."""
    both_started = asyncio.Barrier(2)

    async def meet() -> None:
        await both_started.wait()

    async with asyncio.timeout(30):  # less than a check may take
        checks = [Check("a", meet, seconds=60), Check("b", meet, seconds=60)]
        answer = await client(application(checks=checks)).get("/readyz")
    assert answer.status_code == 200


async def test_readiness_turns_off_when_the_stop_begins_while_life_goes_on() -> None:
    stop = Stop()
    asking = client(application(checks=[Check("database", fine)], stop=stop))
    assert (await asking.get("/readyz")).status_code == 200
    stop.request("SIGTERM")
    answer = await asking.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "stopping")
    assert (await asking.get("/healthz")).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_no_cache_may_keep_an_answer(path: str) -> None:
    assert (await client(application()).get(path)).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_head_request_is_enough_and_a_post_is_refused(path: str) -> None:
    asking = client(application())
    assert (await asking.head(path)).status_code == 200
    assert (await asking.post(path)).status_code == 405


async def test_metrics_are_prometheus_text() -> None:
    asking = client(application())
    await asking.get("/healthz")
    answer = await asking.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert 'novel_http_requests_total{method="GET",route="/healthz",status="200"}' in answer.text
    assert 'novel_http_request_seconds_bucket{le="0.005",route="/healthz"}' in answer.text
