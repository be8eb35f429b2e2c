"""`novel push` as a person runs it, against a service that misbehaves on command."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from runtime import ports
from tests.cli.pushing.fake_service import CREDENTIALS, FakeService, Trouble, error, fake_service
from tests.conftest import NovelCommand, clean_environ, novel_executable
from tests.processes import wait_for

UPDATED = "2026-02-21T08:00:00Z"


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as service:
        yield service


@pytest.fixture
def signing(service: FakeService) -> dict[str, str]:
    return {
        "NOVEL_PUBLIC_URL": service.url,
        "NOVEL_PUSH_KEY_ID": CREDENTIALS.key_id,
        "NOVEL_PUSH_SECRET": CREDENTIALS.secret,
    }


def story(number: int, **more: Any) -> dict[str, Any]:
    return {
        "source": "a",
        "source_story_id": f"s{number}",
        "slug": f"story-{number}",
        "title": f"Truyện {number}",
        "updated_at_source": UPDATED,
    } | more


def chapter(number: int, **more: Any) -> dict[str, Any]:
    return {
        "source": "a",
        "source_story_id": "s1",
        "chapter_no": number,
        "slug": f"chuong-{number}",
        "title": f"Chương {number}",
        "content_raw": f"Nội dung {number}",
        "updated_at_source": UPDATED,
    } | more


def jsonl(*items: dict[str, Any]) -> str:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """A file in which chapters come before the stories they belong to."""
    file = tmp_path / "crawl.jsonl"
    file.write_text(jsonl(*(chapter(n) for n in range(1, 401)), *(story(n) for n in range(1, 4))), encoding="utf-8")
    return file


def test_a_file_is_pushed_stories_first_and_followed_to_the_end(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], crawl: Path
) -> None:
    done = novel("push", str(crawl), **signing)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Accepted 403 (stories: 3, chapters: 400, batches: 3), rejected 0, failed 0.",
        "Processed 403.",
    ]
    assert [post.path.rpartition("ingest/")[2] for post in service.posts()] == [
        "stories/bulk",
        "chapters/bulk",
        "chapters/bulk",
    ]
    assert len(service.items("stories")) == 3
    sent = sorted(service.items("chapters"), key=lambda item: item["chapter_no"])
    assert sent == [{name: value for name, value in chapter(n).items() if name != "source"} for n in range(1, 401)]
    assert "Pushing stories: 3 of 3 (100 %)" in done.stderr
    assert "warning" not in done.stderr


def test_a_second_run_repeats_the_first_and_again_does_not(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], crawl: Path
) -> None:
    for _ in range(2):
        assert novel("push", str(crawl), "--wait", "0", **signing).returncode == 0
    assert len(service.posts()) == 6
    assert len(service.batches) == 3
    assert novel("push", str(crawl), "--wait", "0", "--again", **signing).returncode == 0
    assert len(service.batches) == 6


def test_compressed_files_and_standard_input_are_pushed_too(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "one.jsonl.gz").write_bytes(gzip.compress(jsonl(story(1)).encode()))
    (tmp_path / "two.jsonl.zst").write_bytes(zstandard.compress(jsonl(chapter(1), story(2)).encode()))
    files = [str(tmp_path / "one.jsonl.gz"), str(tmp_path / "two.jsonl.zst"), "-"]
    done = novel("push", *files, stdin=jsonl(chapter(2), story(3)), **signing)
    assert done.returncode == 0, done.stderr
    assert {item["source_story_id"] for item in service.items("stories")} == {"s1", "s2", "s3"}
    assert {item["chapter_no"] for item in service.items("chapters")} == {1, 2}


def test_bad_lines_are_named_and_the_rest_goes_on(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "crawl.jsonl"
    without_source = {name: value for name, value in story(2).items() if name != "source"}
    file.write_text(jsonl(story(1)) + "{broken\n[1]\n" + jsonl(without_source, story(3)))
    done = novel("push", str(file), **signing)
    assert done.returncode == 1
    assert "rejected 3, failed 0." in done.stdout
    complaints = [line for line in done.stderr.splitlines() if "crawl.jsonl:" in line]
    assert [line.split("crawl.jsonl:")[1].split(":")[0] for line in complaints] == ["2", "3", "4"]
    assert "Traceback" not in done.stderr
    assert len(service.items("stories")) == 2
    assert novel("push", str(file), "--source", "b", **signing).returncode == 1
    assert {batch.source for batch in service.batches.values()} == {"a", "b"}


def test_rejected_items_are_named_by_file_and_line(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    service.is_rejected = lambda item: item["source_story_id"] != "s1"
    file = tmp_path / "crawl.jsonl"
    file.write_text(jsonl(*(story(n) for n in range(1, 31))))
    done = novel("push", str(file), **signing)
    assert done.returncode == 1
    assert f"novel: {file}:2: invalid_slug: slug is wrong." in done.stderr
    assert done.stderr.count("invalid_slug") == 20
    assert done.stdout.splitlines()[0] == "... and 9 more were rejected."


def test_the_report_can_be_json(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], crawl: Path
) -> None:
    service.is_rejected = lambda item: item.get("chapter_no") == 7
    done = novel("push", str(crawl), "--json", **signing)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert (report["accepted"], report["rejected"], report["failed"]) == (402, 1, 0)
    assert (report["stories"], report["chapters"], report["processed"], report["waiting"]) == (3, 399, 402, 0)
    assert report["rejections"] == [
        {"place": f"{crawl}:7", "code": "invalid_slug", "message": "slug is wrong.", "count": 1}
    ]


def test_a_bumpy_road_loses_and_doubles_nothing(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], crawl: Path
) -> None:
    service.troubles = deque(
        [
            Trouble(503, {"Retry-After": "0"}, error("queue_full", "The queue is full.")),
            Trouble(loses_answer=True),
            Trouble(),
            Trouble(drops=True),
            Trouble(429, {"Retry-After": "1"}, error("rate_limited")),
            Trouble(loses_answer=True),
        ]
    )
    done = novel("push", str(crawl), **signing)
    assert done.returncode == 0, done.stderr
    assert (len(service.items("stories")), len(service.items("chapters"))) == (3, 400)
    assert "novel: queue_full: The queue is full; trying again in " in done.stderr


def test_items_that_fail_in_processing_make_the_exit_code_1(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "crawl.jsonl").write_text(jsonl(story(1), story(2)))
    service.states = [{"status": "partially_failed", "processed_items": 1, "failed_items": 1}]
    service.failed_items = [
        {"index": 1, "external_id": "s2", "status": "dead_letter", "error_code": "boom", "message": "It broke."}
    ]
    done = novel("push", str(tmp_path / "crawl.jsonl"), **signing)
    assert done.returncode == 1
    assert "novel: s2: failed: boom: It broke." in done.stderr
    assert "rejected 0, failed 1." in done.stdout


def test_items_that_still_wait_are_no_failure(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "crawl.jsonl").write_text(jsonl(story(1)))
    service.states = [{"status": "queued", "processed_items": 0, "failed_items": 0}]
    done = novel("push", str(tmp_path / "crawl.jsonl"), "--wait", "1", **signing)
    assert done.returncode == 0
    assert (
        "novel: waited 1 s; batches that are not processed yet: 1. What was accepted is safe in the queue."
        in done.stderr
    )
    assert done.stdout.splitlines()[-1] == "Processed 0, 1 still wait in the queue."


def test_a_dry_run_sends_nothing_and_says_what_the_service_would_say(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "crawl.jsonl"
    file.write_text(jsonl(chapter(1), story(1), story(2, slug="Not A Slug"), chapter(2, chapter_no=1.005)))
    done = novel("push", str(file), "--dry-run")
    assert done.returncode == 1
    first, second, last = done.stdout.splitlines()
    assert first.startswith("stories batch 1: source a, items: 2, bytes: ")
    assert second.startswith("chapters batch 1: source a, items: 2, bytes: ")
    assert last == "Nothing was sent. Stories: 2, chapters: 2, would be rejected: 2."
    assert first.endswith(f"{file}:2 to {file}:3, would be rejected: 1")
    assert f"novel: {file}:3: invalid_slug: " in done.stderr
    assert f"novel: {file}:4: invalid_chapter_no: " in done.stderr
    assert service.attempts == []
    file.write_text(jsonl(chapter(1), story(1)))
    done = novel("push", str(file), "--dry-run", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["rejected"] == 0


def test_what_lightnovel_crawler_wrote_is_pushed(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    chapters = [{"id": n, "url": f"https://a.example/x/{n}", "title": f"Chapter {n}", "volume": 1} for n in (1, 2)]
    meta = {"novel": {"url": "https://a.example/x", "title": "Tên Truyện", "chapters": chapters}}
    (tmp_path / "json").mkdir()
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "json" / "00001.json").write_text(json.dumps(chapters[0] | {"body": "<p>Text</p>"}))
    done = novel("push", str(tmp_path), **signing)
    assert done.returncode == 0, done.stderr
    assert "Skipped 1 that have no text." in done.stdout
    assert [item["slug"] for item in service.items("stories")] == ["ten-truyen"]
    assert [item["content_raw"] for item in service.items("chapters")] == ["<p>Text</p>"]
    assert {batch.source for batch in service.batches.values()} == {"a.example"}


def test_a_service_that_is_not_there_is_one_line_after_the_count(
    novel: NovelCommand, signing: dict[str, str], crawl: Path
) -> None:
    url = f"http://127.0.0.1:{ports.find()}"
    done = novel("push", str(crawl), "--url", url, "--attempts", "2", **signing)
    assert done.returncode == 1
    assert "Not sent: 400." in done.stdout
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"novel: stopped, because the server takes nothing: {url} cannot be reached (")
    assert "Traceback" not in done.stderr


def test_a_wrong_secret_is_one_line(novel: NovelCommand, signing: dict[str, str], crawl: Path) -> None:
    done = novel("push", str(crawl), **(signing | {"NOVEL_PUSH_SECRET": "wrong"}))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"novel: the server refused key {CREDENTIALS.key_id}: ")


def test_the_secret_can_come_from_a_file(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], crawl: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CREDENTIALS.secret + "\n")
    key, url = CREDENTIALS.key_id, signing["NOVEL_PUBLIC_URL"]
    done = novel("push", str(crawl), "--url", url, "--key-id", key, "--secret-file", str(secret))
    assert done.returncode == 0, done.stderr
    assert len(service.batches) == 3


@pytest.mark.parametrize(
    ("arguments", "variables", "complaint"),
    [
        (("-",), {}, "novel: there is no key id to sign with: set NOVEL_PUSH_KEY_ID and NOVEL_PUSH_SECRET"),
        (("-", "--key-id", "nk"), {}, "novel: there is no secret to sign with"),
        (("no-such-file",), {}, "'no-such-file' does not exist"),
        ((), {}, "Missing argument 'FILE...'"),
        (("-", "--url", "novels.example"), {}, "must look like https://novels.example, not 'novels.example'"),
        (("-", "--url", "http://127.0.0.1:70000"), {}, "must have a port from 1 to 65535"),
        (("-", "--url", "http://[::"), {}, "Invalid value for --url: Invalid port"),
        (("-", "--source", "a\tb"), {}, "Invalid value for --source: "),
        (("-", "--key-id", "nk"), {"NOVEL_PUSH_SECRET": "Đ"}, "novel: that is no secret of a key: "),
        (("-",), {"NOVEL_PUSH_KEY_ID": "n k", "NOVEL_PUSH_SECRET": "s"}, "novel: that is no key id of a key: "),
        (("-", "--concurrency", "0"), {}, "'--concurrency'"),
        (("-", "--wait", "-1"), {}, "'--wait'"),
        (("-", "--secret-file", "no-such-file"), {}, "'no-such-file' does not exist"),
    ],
)
def test_mistakes_are_answered_kindly(
    novel: NovelCommand, arguments: tuple[str, ...], variables: dict[str, str], complaint: str
) -> None:
    done = novel("push", *arguments, stdin="", **variables)
    assert done.returncode in (1, 2)
    assert complaint in done.stderr.splitlines()[-1]


def test_the_variables_of_push_are_no_unknown_settings(novel: NovelCommand, environ: dict[str, str]) -> None:
    done = novel("schema", "status", **environ, NOVEL_PUSH_KEY_ID="nk", NOVEL_PUSH_SECRET="s")
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_with_the_count_so_far_and_a_second_run_finishes(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], crawl: Path
) -> None:
    service.troubles = deque([Trouble(), *[Trouble(503, {"Retry-After": "600"})] * 2])
    running = subprocess.Popen(
        [novel_executable(), "push", str(crawl)],
        env=clean_environ(signing),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: len(service.posts()) >= 2)
    running.send_signal(signal.SIGINT)
    said, complained = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Accepted 3 (stories: 3, chapters: 0, batches: 1), rejected 0, failed 0." in said
    assert "Not sent: 400." in said
    assert complained.splitlines()[-1] == "novel: stopped."
    assert "Traceback" not in complained
    assert novel("push", str(crawl), **signing).returncode == 0
    assert (len(service.items("stories")), len(service.items("chapters"))) == (3, 400)


MEASURED = """
import sys
from pathlib import Path
from cli.main import main

try:
    main()
finally:
    line, = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    print(line.split()[1], file=sys.stderr)
"""


def test_memory_does_not_grow_with_the_file(service: FakeService, signing: dict[str, str], tmp_path: Path) -> None:
    def peak_kilobytes(megabytes: int) -> int:
        file = tmp_path / f"{megabytes}.jsonl"
        with file.open("w", encoding="utf-8") as output:
            for number in range(megabytes * 10):
                output.write(jsonl(chapter(number, content_raw=os.urandom(50_000).hex())))
        done = subprocess.run(
            [sys.executable, "-P", "-c", MEASURED, "push", str(file), "--wait", "0"],
            env=clean_environ(signing),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        file.unlink()
        service.batches.clear()
        service.attempts.clear()
        return int(done.stderr.splitlines()[-1])

    small, large = peak_kilobytes(60), peak_kilobytes(240)
    assert large - small < 90_000  # of 180 MB more that were pushed


def test_a_secret_file_that_is_none_and_a_proxy_that_cannot_be_used_are_one_line(
    novel: NovelCommand, signing: dict[str, str], crawl: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe")
    done = novel("push", str(crawl), "--secret-file", str(tmp_path / "secret"), **signing)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "that is no secret of a key" in done.stderr
    done = novel("push", str(crawl), **signing, ALL_PROXY="gopher://127.0.0.1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("novel: the proxy that the environment names cannot be used: ")


def test_a_file_whose_name_is_no_text_is_pushed_too(
    novel: NovelCommand, service: FakeService, signing: dict[str, str], tmp_path: Path
) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/\xff.jsonl")
    Path(name).write_text(jsonl(story(1)) + "{bad\n")
    done = novel("push", name, "--json", **signing)
    assert (done.returncode, json.loads(done.stdout)["accepted"]) == (1, 1)
    assert "Traceback" not in done.stderr
