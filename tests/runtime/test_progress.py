"""Progress: a bar on a terminal, plain lines elsewhere."""

import io
import os
import pty
import re
import threading

import pytest

from runtime import progress


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_elsewhere_than_on_a_terminal_quick_work_is_one_plain_line(clock: Clock) -> None:
    stream = io.StringIO()
    with progress.bar("Writing stories", total=3, stream=stream) as step:
        for _ in range(3):
            step(1)
            clock.now += 0.5
    assert stream.getvalue() == "Writing stories: 3 of 3 (100 %), 1.5 s\n"


def test_long_work_says_a_line_now_and_then(clock: Clock) -> None:
    stream = io.StringIO()
    with progress.bar("Writing", total=100, stream=stream) as step:
        for _ in range(100):
            clock.now += 0.125
            step(1)
    assert stream.getvalue().splitlines() == [
        "Writing: 40 of 100 (40 %), 5.0 s",
        "Writing: 80 of 100 (80 %), 10.0 s",
        "Writing: 100 of 100 (100 %), 12.5 s",
    ]


def test_the_end_is_told_once(clock: Clock) -> None:
    stream = io.StringIO()
    with progress.bar("Writing", total=1, stream=stream) as step:
        clock.now += 10
        step(1)
    assert stream.getvalue() == "Writing: 1 of 1 (100 %), 10.0 s\n"


def test_the_last_line_tells_how_far_it_came(clock: Clock) -> None:
    stream = io.StringIO()
    with progress.bar("Writing", total=10, stream=stream) as step:
        step(4)
    assert stream.getvalue() == "Writing: 4 of 10 (40 %), 0.0 s\n"


def test_no_work_at_all_is_no_division_by_zero(clock: Clock) -> None:
    stream = io.StringIO()
    with progress.bar("Writing", total=0, stream=stream):
        pass
    assert stream.getvalue() == "Writing: 0 of 0, 0.0 s\n"


def test_a_failure_of_the_work_is_passed_on_and_not_reported_as_done(clock: Clock) -> None:
    stream = io.StringIO()

    def work() -> None:
        with progress.bar("Writing", total=10, stream=stream) as step:
            step(1)
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        work()
    assert stream.getvalue() == ""


def test_without_a_stream_it_goes_to_stderr(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("Writing", total=1) as step:
        step(1)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Writing: 1 of 1 (100 %), 0.0 s\n")


def test_on_a_terminal_it_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for variable in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 65536):
                seen.append(chunk)
        except OSError:  # the other side was closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal, progress.bar("Writing stories", total=3, stream=terminal) as step:
        step(1)
        step(2)
    reader.join(30)
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(seen).decode())
    assert "Writing stories" in text
    assert "3/3" in text
    assert "━" in text
    assert " of 3" not in text
