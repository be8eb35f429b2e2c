"""Logs: one event is one line, whatever is in it; secrets are not."""

import asyncio
import io
import json
import logging
import os
import pty

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from runtime import logs
from tests.runtime.conftest import LogLines

log = logs.get("tests.novel")


def human(level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(format="human", level=level, stream=stream)
    return stream


def test_a_json_line_says_what_where_when_and_with_which_fields(log_lines: LogLines) -> None:
    log.info("job.completed", job_id=7, seconds=0.2, title="Truyện đầu tiên")
    line = log_lines.one("job.completed")
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "job.completed",
        "level": "info",
        "logger": "tests.novel",
        "job_id": 7,
        "seconds": 0.2,
        "title": "Truyện đầu tiên",
    }


def test_a_human_line_is_readable_and_no_json(unconfigured_logs: None) -> None:
    stream = human()
    log.info("job.completed", job_id=7)
    assert "job.completed" in stream.getvalue()
    assert "job_id=7" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
    assert "\x1b" not in stream.getvalue()


def test_auto_is_json_where_nobody_watches(unconfigured_logs: None) -> None:
    stream = io.StringIO()
    logs.configure(format="auto", level="info", stream=stream)
    log.info("a.b")
    assert json.loads(stream.getvalue())["event"] == "a.b"


def test_auto_is_human_on_a_terminal(unconfigured_logs: None) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        logs.configure(format="auto", level="info", stream=terminal)
        log.info("a.b", job_id=7)
        text = os.read(ours, 4096).decode()
    os.close(ours)
    assert "a.b" in text
    assert not text.startswith("{")


def test_lines_below_the_level_are_left_out(unconfigured_logs: None) -> None:
    stream = human("warning")
    log.info("too.quiet")
    logging.getLogger("library").info("too quiet")
    log.warning("loud.enough")
    assert "quiet" not in stream.getvalue()
    assert "loud.enough" in stream.getvalue()


def test_configuring_twice_does_not_double_the_lines(unconfigured_logs: None) -> None:
    human()
    stream = human()
    log.info("once")
    assert stream.getvalue().count("once") == 1


def test_bound_fields_are_on_every_line_until_they_are_unbound(log_lines: LogLines) -> None:
    with logs.bound(request_id="r-1"):
        with logs.bound(job_id=7):
            log.info("both")
            logging.getLogger("library").warning("of a library")
        log.info("outer")
    log.info("none")
    assert {"request_id": "r-1", "job_id": 7}.items() <= log_lines.one("both").items()
    assert {"request_id": "r-1", "job_id": 7}.items() <= log_lines.one("of a library").items()
    assert log_lines.one("outer")["request_id"] == "r-1"
    assert "job_id" not in log_lines.one("outer")
    assert "request_id" not in log_lines.one("none")


async def test_fields_of_one_task_do_not_reach_another(log_lines: LogLines) -> None:
    both_bound = asyncio.Barrier(2)

    async def work(job_id: int) -> None:
        with logs.bound(job_id=job_id):
            await both_bound.wait()
            log.info("worked", expected=job_id)

    await asyncio.gather(work(1), work(2))
    assert sorted((line["job_id"], line["expected"]) for line in log_lines.of("worked")) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    "name",
    [
        "secret",
        "api_secret",
        "password",
        "PASSWORD",
        "db_passwd",
        "x-novel-signature",
        "Authorization",
        "set-cookie",
        "access_token",
        "master_key",
        "content_raw",
        "body",
        "request_body",
    ],
)
def test_a_field_whose_name_smells_of_a_secret_is_redacted(log_lines: LogLines, name: str) -> None:
    log.info("a.b", **{name: "hush"})
    log.info("in.depth", headers={name: "hush", "host": "h"}, items=[{name: ["hush"]}])
    logging.getLogger("library").warning("of a library", extra={name: "hush"})
    with logs.bound(**{name: "hush"}):
        log.info("bound")
    assert "hush" not in log_lines.text
    assert log_lines.one("a.b")[name] == "[redacted]"
    assert log_lines.one("in.depth")["headers"] == {name: "[redacted]", "host": "h"}
    assert len(log_lines.all()) == 4


def test_secrets_are_redacted_for_human_eyes_too(unconfigured_logs: None) -> None:
    stream = human()
    log.info("a.b", password="hush", headers={"cookie": "hush"})
    assert "hush" not in stream.getvalue()
    assert "[redacted]" in stream.getvalue()


def test_measures_are_not_taken_for_secrets(log_lines: LogLines) -> None:
    log.info("a.b", body_bytes=5, body_seconds=0.1, token_type="Bearer")
    line = log_lines.one("a.b")
    assert (line["body_bytes"], line["body_seconds"], line["token_type"]) == (5, 0.1, "Bearer")


def test_bytes_are_counted_and_not_shown(log_lines: LogLines) -> None:
    log.info("a.b", payload=b"hush" * 3, parts=[b"hush"])
    assert log_lines.one("a.b")["payload"] == "[12 bytes]"
    assert "hush" not in log_lines.text


def test_a_long_value_is_cut_and_says_how_long_it_was(log_lines: LogLines) -> None:
    log.info("a.b", title="x" * 5000)
    assert log_lines.one("a.b")["title"] == "x" * 2000 + "… (5000 characters)"


NASTY = "one\ntwo\r\nthree\x1b[31m\x00\u2028four"


def test_a_json_line_has_no_raw_line_break_in_it(log_lines: LogLines) -> None:
    log.info(NASTY, title=NASTY, items=[NASTY], **{"na\nme": NASTY})
    logging.getLogger("library").warning("%s", NASTY)
    assert log_lines.text.count("\n") == 2
    assert "\r" not in log_lines.text
    assert "\x1b" not in log_lines.text
    assert all(json.loads(line)["level"] for line in log_lines.text.strip().split("\n"))


def test_nobody_can_forge_a_human_line(unconfigured_logs: None) -> None:
    stream = human()
    log.info(NASTY, title=NASTY, items=[NASTY])
    logging.getLogger("library").warning("%s", NASTY)
    assert len(stream.getvalue().splitlines()) == 2
    assert "\x1b" not in stream.getvalue()


def test_an_exception_is_one_event_with_its_traceback(log_lines: LogLines) -> None:
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError:
        log.exception("job.failed", job_id=7)
        logging.getLogger("library").exception("library failed")
    assert log_lines.text.count("\n") == 2
    for event in ("job.failed", "library failed"):
        line = log_lines.one(event)
        assert line["level"] == "error"
        assert line["exception"].startswith("Traceback (most recent call last)")
        assert line["exception"].endswith("RuntimeError: first\nsecond")
    assert log_lines.one("job.failed")["job_id"] == 7


def test_an_exception_is_logged_for_human_eyes_with_its_traceback(unconfigured_logs: None) -> None:
    stream = human()
    try:
        raise RuntimeError("first")
    except RuntimeError:
        log.exception("job.failed")
    assert stream.getvalue().count("RuntimeError: first") == 1


class Thing:
    def __repr__(self) -> str:
        return "a thing"


@pytest.mark.parametrize("value", [Thing(), {1: 2}, {Thing(): 1}, 1 << 70, ["\ud800"], {"\ud800": 1}], ids=ascii)
def test_a_value_that_json_does_not_know_costs_no_line(
    log_lines: LogLines, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    log.info("a.b", value=value)
    complained = bool(capsys.readouterr().err)
    assert not complained
    assert "value" in log_lines.one("a.b")


def test_an_exception_with_half_a_character_costs_no_line(
    unconfigured_logs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="info", stream=stream)
    try:
        raise RuntimeError(f"bad name: {chr(0xD800)}")
    except RuntimeError:
        log.exception("job.failed", job_id=7)
    complained = bool(capsys.readouterr().err)
    assert not complained
    line = json.loads(stream.getvalue())
    assert (line["event"], line["job_id"]) == ("job.failed", 7)
    assert "bad name" in line["exception"]


def test_of_the_http_server_only_warnings_are_heard(log_lines: LogLines) -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        assert logging.getLogger(name).handlers == []
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert [line["event"] for line in log_lines.all()] == ["Invalid HTTP request received."]


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event=st.text(), name=st.from_regex(r"[a-z_]{1,10}x", fullmatch=True), value=st.text() | st.binary())
def test_any_event_is_exactly_one_json_line(unconfigured_logs: None, event: str, name: str, value: str | bytes) -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="info", stream=stream)
    log.info(event, **{name: value})
    line, rest = stream.getvalue().split("\n")
    assert rest == ""
    assert name in json.loads(line)
