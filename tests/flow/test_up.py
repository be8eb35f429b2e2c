"""`novel up` as a person uses it: started, used, interrupted, killed, started again."""

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runtime.settings import Settings, load
from schema import connection, migrator
from schema.connection import Connection
from tests.conftest import clean_environ, novel_executable
from tests.processes import processes_of, wait_for


class Running:
    """A `novel up` of a test."""

    def __init__(self, directory: Path, *options: str, **variables: str) -> None:
        self.directory = directory
        self.ready_file = directory.with_suffix(".ready")
        self.ready_file.unlink(missing_ok=True)  # of a run that was killed
        self.output = directory.with_suffix(".out")
        self.process = subprocess.Popen(
            [novel_executable(), "up", "--data-dir", directory, "--ready-file", self.ready_file, *options],
            env=clean_environ(variables),
            stdin=subprocess.DEVNULL,
            stdout=(output := self.output.open("a")),
            stderr=subprocess.STDOUT,
        )
        output.close()
        wait_for(lambda: self.ready_file.exists() or self.process.poll() is not None, seconds=60)
        assert self.ready_file.exists(), self.said()
        self.ready: dict[str, str] = json.loads(self.ready_file.read_text())

    def said(self) -> str:
        return self.output.read_text()

    def get(self, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(self.ready["base_url"] + path, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def directory(scratch: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    directory = scratch / f"up-{abs(hash(request.node.name)):x}"
    yield directory
    for pid in processes_of(directory):
        os.kill(pid, signal.SIGKILL)


def test_up_answers_and_ctrl_c_leaves_no_process_behind(directory: Path) -> None:
    running = Running(directory, NOVEL_MARK=str(directory))
    assert set(running.ready) == {
        "base_url",
        "admin_url",
        "database_url",
        "redis_url",
        "key_id",
        "secret",
        "admin_user",
        "admin_password",
    }
    assert running.ready_file.stat().st_mode & 0o777 == 0o600
    assert running.get("/healthz")[0] == 200
    assert json.loads(running.get("/readyz")[1])["status"] == "ready"
    assert b"novel_http_requests_total" in running.get("/metrics")[1]
    assert "novel/v1" in json.loads(running.get("/wp-json/")[1])["namespaces"]
    assert running.get("/admin/")[0] == 200
    assert len(processes_of(directory)) >= 7
    wait_for(lambda: b"novel_queue_claimed_items_total" in running.get("/metrics")[1])  # of the workers, too
    wait_for(lambda: "Ctrl-C stops it." in running.said())
    printed = re.search(r"Commands +(set -a; .+)   \(then for example: (.+)\)", running.said())
    assert printed, running.said()
    doctor = f"{printed[1]}; {printed[2]}"
    assert subprocess.run(["bash", "-c", doctor], env=clean_environ({}), timeout=60, check=False).returncode == 0
    assert running.stop() == 0
    assert processes_of(directory) == []
    assert not running.ready_file.exists()
    assert "Stopped." in running.said()


def pushed(database_url: str) -> list[tuple[str, str, int]]:
    """What was accepted into a database: source, kind, items."""
    with connection.connect(load({"NOVEL_DATABASE_URL": database_url}).database) as conn:
        return conn.fetch_all("SELECT source, job_type, accepted_items FROM wp_novel_ingest_requests ORDER BY id")


def chapter_counts(database_url: str) -> list[tuple[str, int]]:
    """Stories that readers could see, and how many chapters they are said to have."""
    with connection.connect(load({"NOVEL_DATABASE_URL": database_url}).database) as conn:
        return conn.fetch_all("SELECT slug, chapter_count FROM wp_novel_stories WHERE status > 0 ORDER BY slug")


def _are_counted(database_url: str, *, chapters: int) -> bool:
    return sum(count for _, count in chapter_counts(database_url)) == chapters


def test_a_demo_catalogue_is_pushed_once_and_worked(directory: Path) -> None:
    demo = [("demo", "stories_bulk", 3), ("demo", "chapters_bulk", 10)]
    for _ in range(2):
        running = Running(directory, NOVEL_RECOUNT_WINDOW_SECONDS="0")
        url = running.ready["database_url"]
        assert pushed(url) == demo
        wait_for(partial(_are_counted, url, chapters=10))
        assert len(chapter_counts(url)) == 3
        assert running.stop() == 0


def test_without_demo_nothing_is_pushed(directory: Path) -> None:
    running = Running(directory, "--no-demo")
    assert pushed(running.ready["database_url"]) == []
    assert running.stop() == 0


def test_after_kill_9_it_starts_again_with_the_same_credentials(directory: Path) -> None:
    first = Running(directory)
    first.process.kill()
    first.process.wait()
    second = Running(directory)
    assert second.get("/readyz")[0] == 200
    kept = ("database_url", "redis_url", "key_id", "secret", "admin_password")
    assert [second.ready[name] for name in kept] == [first.ready[name] for name in kept]
    assert second.stop(signal.SIGTERM) == 0


def test_what_dies_is_started_again_and_the_rest_goes_on(directory: Path) -> None:
    running = Running(directory)
    workers = ("story-worker.pid", "chapter-worker.pid", "recount-worker.pid")
    for pid_file in ("mariadb/child.pid", "redis/child.pid", "api.pid", *workers):
        path = directory / pid_file
        pid = int(path.read_text())
        os.kill(pid, signal.SIGKILL)
        wait_for(partial(_has_other_pid, path, pid))
        wait_for(lambda: _is_ready(running))
    assert running.process.poll() is None
    assert running.stop() == 0


def _has_other_pid(path: Path, pid: int) -> bool:
    return path.exists() and int(path.read_text() or pid) != pid


def _is_ready(running: Running) -> bool:
    try:
        status, body = running.get("/readyz")
    except OSError:
        return False
    return status == 200 and all(check["ok"] for check in json.loads(body)["checks"].values())


def test_a_database_that_it_was_given_is_used_and_its_users_left_alone(
    directory: Path, empty_conn: Connection, redis_url: str
) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    empty_conn.execute("INSERT INTO wp_users (user_login, user_pass) VALUES ('admin', 'of WordPress')")
    running = Running(directory, NOVEL_DATABASE_URL=empty_conn.address.url, NOVEL_REDIS_URL=redis_url)
    assert running.ready["database_url"] == empty_conn.address.url
    assert running.ready["admin_user"] == "novel-admin"
    users = empty_conn.fetch_all("SELECT user_login, user_pass FROM wp_users ORDER BY ID")
    assert [login for login, _ in users] == ["admin", "novel-admin"]
    assert users[0][1] == "of WordPress"
    assert pushed(empty_conn.address.url) == []  # no demo into what may be somebody's site
    assert running.stop() == 0
    assert not (directory / "mariadb").exists()
    assert not (directory / "redis").exists()


def test_a_second_up_on_the_same_folder_is_refused(directory: Path) -> None:
    running = Running(directory)
    second = subprocess.run(
        [novel_executable(), "up", "--data-dir", directory, "--ready-file", running.ready_file],
        env=clean_environ({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert f"already runs on {directory} (process {running.process.pid})" in second.stderr
    assert running.ready_file.exists()
    assert running.get("/readyz")[0] == 200
    assert running.stop() == 0


def test_another_folder_on_the_same_database_gets_a_key_of_its_own(
    directory: Path, empty_settings: Settings, redis_url: str
) -> None:
    address = empty_settings.database.address
    assert address is not None
    other = directory.with_name(f"{directory.name}-other")
    variables = {"NOVEL_DATABASE_URL": address.url, "NOVEL_REDIS_URL": redis_url}
    ids = []
    for folder in (directory, other, directory):
        running = Running(folder, **variables)
        ids.append(running.ready["key_id"])
        assert running.stop() == 0
    assert ids[0] == ids[2] != ids[1]


def test_ctrl_c_during_the_start_stops_at_once(directory: Path) -> None:
    process = subprocess.Popen(
        [novel_executable(), "up", "--data-dir", directory],
        env=clean_environ({}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for(lambda: (directory / "mariadb" / "child.pid").exists())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "is running" not in said
    assert said.endswith("Stopped.\n")
    assert processes_of(directory) == []
