"""docs/ingest.md: its signing examples push to a real service, and it names every field and code there is."""

import hashlib
import hmac
import json
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cli.pushing import items as pushed
from ingest import errors, following, items, routes
from ingest.items import ChapterItem, RequestState, StoryItem
from runtime import settings
from runtime.errors import ApiError
from schema.connection import Connection
from store import api_keys
from tests.conftest import ROOT, clean_environ
from tests.ingest.client import STORIES, Crawler
from tests.processes import HOST, Served, serving

DOCUMENT = (ROOT / "docs" / "ingest.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "docs" / "examples"
PROGRAMS = {"push.py": ["python3"], "push.php": ["php"], "push.mjs": ["node"], "push.sh": ["sh", "curl", "openssl"]}

ITEMS: dict[str, list[dict[str, Any]]] = {
    "stories": [
        {
            "source_story_id": f"s{number}",
            "slug": f"truyen-{number}",
            "title": f"Truyện «{number}»\nđấu",
            "updated_at_source": "2026-02-21T08:00:00Z",
        }
        for number in range(3)
    ],
    "chapters": [
        {
            "source_story_id": "s1",
            "chapter_no": 12.5,
            "slug": "chuong-12-5",
            "title": "Chương 12.5",
            "content_raw": "<p>Đấu Phá</p>" * 1000,
            "updated_at_source": "2026-02-21T08:05:00+07:00",
        }
    ],
}


@dataclass(frozen=True)
class Example:
    """One of the examples, with a key of its own."""

    name: str
    served: Served
    key_id: str
    secret: str

    def run(self, kind: str, file: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        environ = {
            "NOVEL_PUBLIC_URL": f"http://{HOST}:{self.served.port}",
            "NOVEL_PUSH_KEY_ID": self.key_id,
            "NOVEL_PUSH_SECRET": self.secret,
        }
        return subprocess.run(
            [PROGRAMS[self.name][0], str(EXAMPLES / self.name), kind, str(file)],
            env=clean_environ(environ | variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, migrated_url: str, redis_url: str) -> Iterator[Served]:
    variables = {
        "NOVEL_DATABASE_URL": migrated_url,
        "NOVEL_REDIS_URL": redis_url,
        "NOVEL_MASTER_KEY": "a master key for tests, long enough",
    }
    with serving(tmp_path_factory.mktemp("examples"), variables, "ingest") as served:
        yield served


@pytest.fixture(params=PROGRAMS)
def example(request: pytest.FixtureRequest, served: Served, environ: dict[str, str], conn: Connection) -> Example:
    for program in PROGRAMS[request.param]:
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}, which `make test` installs")
    key_id, secret = api_keys.create(
        conn,
        name=request.param,
        permissions=["ingest:stories", "ingest:chapters"],
        master_key=environ["NOVEL_MASTER_KEY"],
        operator="the tests",
    )
    return Example(request.param, served, key_id, secret)


@pytest.mark.parametrize("kind", ITEMS)
def test_an_example_pushes_a_batch_once_however_often_it_runs(
    example: Example, conn: Connection, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "a batch.json"
    file.write_text(json.dumps({"source": "a", "items": ITEMS[kind]}, ensure_ascii=False), encoding="utf-8")
    answers = set()
    for _ in range(2):
        done = example.run(kind, file)
        assert (done.returncode, done.stderr) == (0, "")
        assert "202" in done.stdout
        answers.add(done.stdout)
    (answer,) = answers
    assert f'"accepted_count":{len(ITEMS[kind])}' in answer
    assert conn.fetch_all("SELECT source, accepted_items, key_id FROM wp_novel_ingest_requests") == [
        ("a", len(ITEMS[kind]), example.key_id)
    ]
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_jobs") == [(len(ITEMS[kind]),)]


def test_an_example_with_a_wrong_secret_fails_and_shows_why(example: Example, conn: Connection, tmp_path: Path) -> None:
    file = tmp_path / "batch.json"
    file.write_text(json.dumps({"source": "a", "items": ITEMS["stories"]}), encoding="utf-8")
    done = example.run("stories", file, NOVEL_PUSH_SECRET=example.secret[::-1])
    assert done.returncode != 0
    assert "401" in done.stdout
    assert "invalid_signature" in done.stdout
    assert conn.fetch_all("SELECT COUNT(*) FROM wp_novel_ingest_requests") == [(0,)]


def test_a_question_signed_as_the_document_shows_is_answered(
    served: Served, environ: dict[str, str], conn: Connection
) -> None:
    key_id, secret = api_keys.create(
        conn,
        name="asking",
        permissions=["ingest:stories"],
        master_key=environ["NOVEL_MASTER_KEY"],
        operator="the tests",
    )
    crawler = Crawler(served.port, key_id, secret)
    names: dict[str, Any] = {"request_id": crawler.push(ITEMS["stories"][0], path=STORIES).json()["request_id"]}
    names |= {"secret": secret, "hashlib": hashlib, "hmac": hmac, "secrets": secrets, "time": time}
    (shown,) = re.findall(r"^```python\n(path = .*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    exec(shown, names)
    headers = {
        "X-Novel-Key-Id": key_id,
        "X-Novel-Timestamp": names["timestamp"],
        "X-Novel-Nonce": names["nonce"],
        "X-Novel-Signature": names["signature"],
    }
    answer = served.request("GET", names["path"], headers=headers)
    assert (answer.status, answer.json()["status"]) == (200, "queued")


def test_the_document_shows_the_examples_as_they_are() -> None:
    blocks = re.findall(r"^```(?:python|php|js|sh)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    for name in PROGRAMS:
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        assert text in blocks, name
        assert len(text.splitlines()) <= 36, name


def test_the_document_names_every_field() -> None:
    for item in (StoryItem, ChapterItem):
        for field in structs.fields(item):
            if field.name == "deleted":
                assert '"deleted": true' in DOCUMENT
                continue
            required = " required " if field.required else " "
            assert f"| `{field.name}` |{required}|" in DOCUMENT, field.name
    for field in structs.fields(RequestState):
        assert f'"{field.name}":' in DOCUMENT


def test_the_document_names_every_code_of_a_refusal() -> None:
    refusals = [
        one
        for module in (errors, following)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, ApiError) and one is not ApiError
    ]
    assert len(refusals) > 15
    rows = [line for line in DOCUMENT.splitlines() if re.match(r"\| \d", line)]
    for refusal in refusals:
        assert [row for row in rows if f"`{refusal.code}`" in row and str(refusal.status) in row], refusal.code


def test_the_document_names_every_code_of_an_item() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "ingest").glob("*.py")]
    codes = {code for text in texts for code in re.findall(r'Refused\(\s*"([a-z_]+)"', text)}
    codes |= {"duplicate_item", "out_of_range"}
    assert len(codes) >= 10
    for code in codes:
        assert f"`{code}`" in DOCUMENT, code


def test_the_client_goes_to_the_routes_and_limits_of_the_service() -> None:
    limits = settings.load({}).ingest
    assert (pushed.STORIES.path, pushed.CHAPTERS.path) == (routes.STORIES, routes.CHAPTERS)
    assert (pushed.STORIES.max_body_bytes, pushed.CHAPTERS.max_body_bytes) == (
        limits.max_stories_bytes,
        limits.max_chapters_bytes,
    )
    assert pushed.MAX_ITEMS == items.MAX_ITEMS
