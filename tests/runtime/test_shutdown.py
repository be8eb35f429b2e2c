"""The stop: asked for once, heard by every loop, by thread and coroutine alike; a second signal ends at once."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runtime.shutdown import SIGNALS, Stop, on_signals
from tests.conftest import ROOT, clean_environ
from tests.runtime.serving import until
from tests.runtime.waiting import wait_for

pytestmark = pytest.mark.anyio


def test_a_stop_is_not_requested_until_it_is() -> None:
    stop = Stop()
    before = stop.requested, stop.wait(0), stop.wait(-1)
    stop.request("SIGTERM")
    assert before == (False, False, False)
    assert (stop.requested, stop.wait(0), stop.wait()) == (True, True, True)


def test_the_first_reason_stays() -> None:
    stop = Stop()
    stop.request("SIGTERM")
    stop.request("memory limit")
    assert stop.reason == "SIGTERM"


def test_every_waiting_thread_hears_it() -> None:
    stop = Stop()
    heard: list[bool] = []
    threads = [threading.Thread(target=lambda: heard.append(stop.wait()), daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    stop.request("SIGTERM")
    wait_for(lambda: heard == [True] * 5, what="every thread")


async def test_every_waiting_coroutine_hears_it_from_another_thread() -> None:
    stop = Stop()
    waiting = [asyncio.create_task(stop.wait_async()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    threading.Thread(target=stop.request, args=("SIGTERM",)).start()
    async with asyncio.timeout(30):
        await asyncio.gather(*waiting)


async def test_a_coroutine_that_comes_late_does_not_wait() -> None:
    stop = Stop()
    stop.request("SIGTERM")
    async with asyncio.timeout(30):
        await stop.wait_async()


async def test_a_coroutine_that_gave_up_waiting_is_forgotten() -> None:
    stop = Stop()
    waiting = asyncio.create_task(stop.wait_async())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    stop.request("SIGTERM")
    assert waiting.cancelled()
    assert stop._listeners == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_requests_the_stop_and_is_its_reason(number: signal.Signals) -> None:
    with on_signals(Stop()) as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(30)
        assert stop.reason == number.name


async def test_a_signal_wakes_a_waiting_coroutine() -> None:
    with on_signals(Stop()) as stop:
        waiting = asyncio.create_task(stop.wait_async())
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(waiting.done)


@pytest.mark.parametrize("number", SIGNALS)
def test_earlier_handlers_are_back_after_the_block_even_when_it_fails(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def fail() -> None:
        with on_signals(Stop()):
            assert signal.getsignal(number) is not before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert signal.getsignal(number) is before


def program(script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, env=clean_environ({}), stdout=subprocess.PIPE, text=True
    )


STUBBORN = """
import sys, time
from pathlib import Path
from runtime.shutdown import Stop, on_signals
with on_signals(Stop()) as stop:
    Path(sys.argv[1], "ready").touch()
    stop.wait()
    Path(sys.argv[1], "draining").touch()
    time.sleep(600)
"""


@pytest.mark.parametrize(("second", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_the_process_amid_its_draining(
    second: signal.Signals, exit_code: int, tmp_path: Path
) -> None:
    with program(STUBBORN, str(tmp_path)) as process:
        try:
            wait_for((tmp_path / "ready").exists)
            process.send_signal(signal.SIGINT)
            wait_for((tmp_path / "draining").exists)
            assert process.poll() is None
            process.send_signal(second)
            assert process.wait(30) == exit_code
        finally:
            process.kill()


BUSY = """
import os, signal, threading, time
from runtime.shutdown import Stop, on_signals
def interrupt():
    time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)
for _ in range(100):
    with on_signals(Stop()) as stop:
        threading.Thread(target=interrupt).start()
        while not stop.wait(0):
            pass
print("every stop was heard")
"""


def test_a_signal_at_any_moment_of_a_wait_is_heard() -> None:
    """The handler runs between any two steps of a wait; taking a lock that the wait holds, it would hang for ever."""
    with program(BUSY) as process:
        try:
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert said == "every stop was heard\n"
