"""`novel push` against the real service: what it says was accepted is in the database, once."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime import ports
from schema.connection import Connection
from store import api_keys
from tests.cli.test_push import chapter, jsonl, story
from tests.conftest import NovelCommand, clean_environ, novel_executable
from tests.processes import HOST, Served, serving, wait_for

UNLIMITED = {"NOVEL_INGEST_REQUESTS_PER_MINUTE": "100000", "NOVEL_INGEST_BYTES_PER_MINUTE": str(1 << 40)}
COMPLETED = 2
PARTIALLY_FAILED = 3
DEAD_LETTER = 4

MakeSigning = Callable[[Served], dict[str, str]]


@pytest.fixture
def make_signing(environ: dict[str, str], conn: Connection) -> MakeSigning:
    """The environment of a crawler with a key of its own."""

    def make(served: Served) -> dict[str, str]:
        key_id, secret = api_keys.create(
            conn,
            name="crawler",
            permissions=["ingest:stories", "ingest:chapters"],
            master_key=environ["NOVEL_MASTER_KEY"],
            operator="the tests",
        )
        return {
            "NOVEL_PUBLIC_URL": f"http://{HOST}:{served.port}",
            "NOVEL_PUSH_KEY_ID": key_id,
            "NOVEL_PUSH_SECRET": secret,
        }

    return make


@pytest.fixture
def served(tmp_path: Path, environ: dict[str, str]) -> Iterator[Served]:
    with serving(tmp_path, environ | UNLIMITED, "ingest") as served:
        yield served


@pytest.fixture
def signing(served: Served, make_signing: MakeSigning) -> dict[str, str]:
    return make_signing(served)


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    file = tmp_path / "crawl.jsonl"
    items = [*(chapter(n) for n in range(1, 701)), *(story(n) for n in range(1, 4))]
    file.write_text(jsonl(*items), encoding="utf-8")
    return file


def queued(conn: Connection) -> dict[str, int]:
    """Jobs by type; each once, or the test fails."""
    rows = conn.fetch_all("SELECT job_type, external_ref, COUNT(*) FROM wp_novel_ingest_jobs GROUP BY 1, 2")
    assert all(count == 1 for _, _, count in rows), "an item is there twice"
    found: dict[str, int] = {}
    for job_type, _, _ in rows:
        found[job_type] = found.get(job_type, 0) + 1
    return found


def test_what_is_accepted_is_in_the_queue_once_however_often_it_is_pushed(
    novel: NovelCommand, signing: dict[str, str], conn: Connection, crawl: Path
) -> None:
    for _ in range(2):
        done = novel("push", str(crawl), "--wait", "0", **signing)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "Accepted 703 (stories: 3, chapters: 700, batches: 4), rejected 0, failed 0.\n"
        assert queued(conn) == {"stories_bulk": 3, "chapters_bulk": 700}
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_requests") == [(4,)]
    assert novel("push", str(crawl), "--wait", "0", "--again", **signing).returncode == 0
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_requests") == [(8,)]


def test_what_the_service_rejects_is_named_by_file_and_line_as_a_dry_run_names_it(
    novel: NovelCommand, signing: dict[str, str], conn: Connection, tmp_path: Path
) -> None:
    file = tmp_path / "crawl.jsonl"
    items = [story(1), story(2, slug="Not A Slug"), story(3, colour="red"), chapter(1, content_raw="x" * 262_145)]
    file.write_text(jsonl(*items))
    done = novel("push", str(file), "--wait", "0", **signing)
    rehearsed = novel("push", str(file), "--dry-run")
    assert (done.returncode, rehearsed.returncode) == (1, 1)
    assert f"novel: {file}:2: invalid_slug: " in done.stderr
    assert f"novel: {file}:4: content_too_large: " in done.stderr
    assert "novel: warning: unknown_field: " in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("novel: ")]
    assert said == [line for line in rehearsed.stderr.splitlines() if line.startswith("novel: ")]
    assert queued(conn) == {"stories_bulk": 2}


def test_a_batch_too_large_for_this_service_is_halved(
    novel: NovelCommand,
    tmp_path: Path,
    environ: dict[str, str],
    make_signing: MakeSigning,
    conn: Connection,
    crawl: Path,
) -> None:
    with serving(tmp_path, environ | UNLIMITED | {"NOVEL_INGEST_MAX_CHAPTERS_BYTES": "20000"}, "ingest") as served:
        done = novel("push", str(crawl), "--wait", "0", **make_signing(served))
    assert done.returncode == 0, done.stderr
    assert queued(conn) == {"stories_bulk": 3, "chapters_bulk": 700}


def test_a_service_killed_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path,
    environ: dict[str, str],
    make_signing: MakeSigning,
    conn: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "crawl.jsonl"
    with file.open("w", encoding="utf-8") as output:
        for number in range(1, 6001):
            output.write(jsonl(chapter(number)))
    port = ports.find()
    monkeypatch.setattr(ports, "find", lambda: port)
    with serving(tmp_path, environ | UNLIMITED, "ingest") as first:
        pushing = subprocess.Popen(
            [novel_executable(), "push", str(file), "--wait", "0", "--json"],
            env=clean_environ(make_signing(first)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_requests") > [(2,)])
        first.stop(signal.SIGKILL)
    with serving(tmp_path, environ | UNLIMITED, "ingest"):
        said, complained = pushing.communicate(timeout=120)
    assert pushing.returncode == 0, complained
    assert json.loads(said)["accepted"] == 6000
    assert queued(conn) == {"chapters_bulk": 6000}


def finish(conn: Connection, *, status: int, failed: int = 0) -> None:
    """What a worker would write."""
    conn.execute(
        "UPDATE wp_novel_ingest_requests SET status = %s, processed_items = accepted_items - %s, failed_items = %s",
        (status, failed, failed),
    )


@pytest.mark.parametrize(("failed", "exit_code"), [(0, 0), (1, 1)])
def test_it_waits_until_workers_are_done_and_names_what_failed(
    signing: dict[str, str], conn: Connection, tmp_path: Path, failed: int, exit_code: int
) -> None:
    file = tmp_path / "crawl.jsonl"
    file.write_text(jsonl(story(1), story(2)))
    pushing = subprocess.Popen(
        [novel_executable(), "push", str(file)],
        env=clean_environ(signing),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_requests") == [(1,)])
    if failed:
        conn.execute(
            "UPDATE wp_novel_ingest_jobs SET status = %s, error_code = 'slug_conflict', last_error = 'Taken.'"
            " WHERE external_ref = 's2'",
            (DEAD_LETTER,),
        )
    finish(conn, status=PARTIALLY_FAILED if failed else COMPLETED, failed=failed)
    said, complained = pushing.communicate(timeout=60)
    assert pushing.returncode == exit_code, complained
    assert said.splitlines() == [
        f"Accepted 2 (stories: 2, chapters: 0, batches: 1), rejected 0, failed {failed}.",
        f"Processed {2 - failed}.",
    ]
    assert ("novel: s2: failed: slug_conflict: Taken." in complained) == bool(failed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"NOVEL_PUSH_SECRET": "wrong"}, "The key is unknown or the signature does not match the request."),
        ({"NOVEL_PUSH_KEY_ID": "nk_0000000000000000.1"}, "The key is unknown or the signature does not match"),
    ],
)
def test_a_key_that_is_not_right_is_one_line(
    novel: NovelCommand, signing: dict[str, str], crawl: Path, change: dict[str, str], said: str
) -> None:
    done = novel("push", str(crawl), **(signing | change))
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_revoked_key_is_one_line(
    novel: NovelCommand, environ: dict[str, str], signing: dict[str, str], crawl: Path
) -> None:
    assert novel("keys", "revoke", signing["NOVEL_PUSH_KEY_ID"], **environ).returncode == 0
    done = novel("push", str(crawl), **signing)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("(key_inactive)")


def test_what_lightnovel_crawler_wrote_is_accepted_whole(
    novel: NovelCommand, signing: dict[str, str], conn: Connection, tmp_path: Path
) -> None:
    chapters: list[dict[str, Any]] = [
        {"id": n, "url": f"https://www.a.example/x/{n}.html", "title": f"Chương {n}", "volume": 1} for n in (1, 2)
    ]
    meta = {"novel": {"url": "https://www.a.example/x/", "title": "Đấu Phá", "authors": ["A"], "chapters": chapters}}
    (tmp_path / "x" / "json").mkdir(parents=True)
    (tmp_path / "x" / "meta.json").write_text(json.dumps(meta))
    for one in chapters:
        file = tmp_path / "x" / "json" / f"{one['id']:05}.json"
        file.write_text(json.dumps(one | {"body": "<p>Nội dung</p>", "success": True}))
    done = novel("push", str(tmp_path / "x"), "--wait", "0", **signing)
    assert done.returncode == 0, done.stderr
    rows = conn.fetch_all("SELECT source, external_ref FROM wp_novel_ingest_jobs ORDER BY id")
    assert rows == [("a.example", ref) for ref in ("x", "x/x/1.html", "x/x/2.html")]
