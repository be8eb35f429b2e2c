"""The JSON of lightnovel-crawler, in the three shapes it has had."""

import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.pushing import items, lightnovel_crawler
from cli.pushing.lines import Line
from cli.pushing.rehearsal import rehearse
from cli.pushing.report import Report
from runtime.problems import Problem

WRITTEN = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
URL = "https://www.truyen.example/truyen/dau-pha/"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    os.utime(path, (WRITTEN.timestamp(), WRITTEN.timestamp()))


def chapter(number: int, *, volume: int | None = 1, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "url": f"https://www.truyen.example/truyen/dau-pha/{number}.html",
        "title": f"Thiên Tài {number}",
        "volume": volume,
        "volume_title": f"Volume {volume}",
    } | more


def with_body(number: int, **more: Any) -> dict[str, Any]:
    body = f"<h1>Thiên Tài {number}</h1><p>Nội dung {number}</p>"
    return chapter(number, body=body, images={}, success=True, **more)


def version_3(folder: Path, *, count: int = 3, **novel: Any) -> None:
    """`novel` and `session`, chapters in json/."""
    facts = {
        "url": URL,
        "title": "Đấu Phá Thương Khung",
        "authors": ["Thiên Tàm Thổ Đậu", "Người Dịch"],
        "cover_url": "https://img.example/c.jpg",
        "chapters": [chapter(number, body=None) for number in range(1, count + 1)],
        "volumes": [{"id": 1, "title": "Volume 1", "start_chapter": 1, "final_chapter": count}],
        "is_rtl": False,
        "synopsis": "<p>Tóm tắt</p>",
        "language": "vi",
        "tags": ["Tiên Hiệp", "Huyền Huyễn", "Tiên Hiệp", " "],
    }
    write(folder / "meta.json", {"session": {"completed": True}, "novel": facts | novel})
    for number in range(1, count + 1):
        write(folder / "json" / f"{number:05}.json", with_body(number))


def version_2(folder: Path) -> None:
    """Facts at the top, packed by volumes."""
    facts = {
        "url": URL,
        "title": "Đấu Phá Thương Khung",
        "author": "Thiên Tàm Thổ Đậu",
        "cover": "cover.png",
        "volumes": [{"id": 1, "title": "Volume 1"}, {"id": 2, "title": "Volume 2"}],
        "chapters": [chapter(1), chapter(2, volume=2)],
        "rtl": False,
    }
    write(folder / "meta.json", facts)
    write(folder / "json" / "Volume 01" / "00001.json", with_body(1))
    write(folder / "json" / "Volume 02" / "00002.json", with_body(2, volume=2))


def version_4(archive: Path) -> None:
    """A zip archive; chapters below their volumes, times in milliseconds."""
    changed = round(WRITTEN.timestamp() * 1000)
    listed = [
        {"id": f"c{number}", "serial": number, "url": chapter(number)["url"], "title": chapter(number)["title"]}
        | {"updated_at": changed, "is_done": True}
        for number in (1, 2)
    ]
    novel = {
        "id": "n1",
        "updated_at": changed,
        "domain": "www.truyen.example",
        "url": URL,
        "title": "Đấu Phá Thương Khung",
        "authors": "Thiên Tàm Thổ Đậu",
        "tags": ["Tiên Hiệp"],
        "synopsis": None,
        "language": "vi",
        "volumes": [{"id": "v1", "serial": 1, "title": "Volume 1", "chapters": listed}],
    }
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("001/00001.json", json.dumps(listed[0] | {"content": "<p>Nội dung 1</p>"}))
        made.writestr("meta.json", json.dumps(novel))


def read(name: Path, stack: ExitStack, *, source: str | None = None, with_chapters: bool = True) -> list[Line]:
    found = lightnovel_crawler.inputs(str(name), stack, source=source)
    return [line for one in found for line in one.lines(with_chapters=with_chapters)]


def good(lines: list[Line]) -> list[dict[str, Any]]:
    return [line.data for line in lines if line.data is not None]


@pytest.mark.parametrize("named", [".", "meta.json"])
def test_version_3_becomes_a_story_and_its_chapters(tmp_path: Path, stack: ExitStack, named: str) -> None:
    version_3(tmp_path)
    story, first, *others = good(read(tmp_path / named, stack))
    assert story == {
        "source": "truyen.example",
        "source_story_id": "truyen/dau-pha",
        "slug": "dau-pha-thuong-khung",
        "title": "Đấu Phá Thương Khung",
        "author_name": "Thiên Tàm Thổ Đậu, Người Dịch",
        "cover_url": "https://img.example/c.jpg",
        "summary": "<p>Tóm tắt</p>",
        "language": "vi",
        "genres": ["Tiên Hiệp", "Huyền Huyễn"],
        "updated_at_source": "2024-05-06T07:08:09Z",
    }
    assert first == {
        "source": "truyen.example",
        "source_story_id": "truyen/dau-pha",
        "source_chapter_id": "truyen/dau-pha/1.html",
        "chapter_no": 1,
        "slug": "chuong-1",
        "title": "Thiên Tài 1",
        "content_raw": "<h1>Thiên Tài 1</h1><p>Nội dung 1</p>",
        "updated_at_source": "2024-05-06T07:08:09Z",
    }
    assert [other["slug"] for other in others] == ["chuong-2", "chuong-3"]


def test_version_2_packed_by_volumes_becomes_the_same(tmp_path: Path, stack: ExitStack) -> None:
    version_2(tmp_path)
    story, *chapters = good(read(tmp_path, stack))
    assert (story["author_name"], "cover_url" in story) == ("Thiên Tàm Thổ Đậu", False)
    assert [(one["chapter_no"], one["content_raw"]) for one in chapters] == [
        (1, with_body(1)["body"]),
        (2, with_body(2)["body"]),
    ]


@pytest.mark.parametrize("unpacked", [False, True])
def test_version_4_is_read_from_its_archive_or_from_the_folder_it_was_unpacked_to(
    tmp_path: Path, stack: ExitStack, unpacked: bool
) -> None:
    archive = tmp_path / "Dau Pha.json.zip"
    version_4(archive)
    if unpacked:
        with zipfile.ZipFile(archive) as made:
            made.extractall(tmp_path / "unpacked")
        archive = tmp_path / "unpacked"
    lines = read(archive, stack)
    story, first = good(lines)
    assert (story["author_name"], story["genres"]) == ("Thiên Tàm Thổ Đậu", ["Tiên Hiệp"])
    assert (first["chapter_no"], first["content_raw"]) == (1, "<p>Nội dung 1</p>")
    assert story["updated_at_source"] == first["updated_at_source"] == "2024-05-06T07:08:09Z"
    assert [line.skipped for line in lines] == ["", "", "no text"]


def test_a_folder_of_many_novels_is_imported_whole(tmp_path: Path, stack: ExitStack) -> None:
    version_3(tmp_path / "site-a" / "One", count=1)
    version_3(tmp_path / "site-b" / "Two", count=1, url="https://b.example/two", title="Two")
    assert [one["source"] for one in good(read(tmp_path, stack))] == ["truyen.example"] * 2 + ["b.example"] * 2


def test_chapters_that_have_no_text_are_skipped(tmp_path: Path, stack: ExitStack) -> None:
    version_3(tmp_path, count=5)
    (tmp_path / "json" / "00001.json").unlink()
    write(tmp_path / "json" / "00002.json", chapter(2, body=" "))
    failed = "<h1>Thiên Tài 3</h1><p><i>Failed to download chapter body</i></p>"
    write(tmp_path / "json" / "00003.json", chapter(3, body=failed, success=False))
    write(tmp_path / "json" / "00004.json", chapter(4))
    lines = read(tmp_path, stack)
    assert [one["slug"] for one in good(lines)[1:]] == ["chuong-5"]
    assert sum(bool(line.skipped) for line in lines) == 4


def test_stories_can_be_read_without_the_chapters(tmp_path: Path, stack: ExitStack) -> None:
    version_3(tmp_path)
    assert len(read(tmp_path, stack, with_chapters=False)) == 1


def test_source_can_be_named(tmp_path: Path, stack: ExitStack) -> None:
    version_3(tmp_path)
    assert {one["source"] for one in good(read(tmp_path, stack, source="mine"))} == {"mine"}


def test_addresses_that_several_chapters_share_name_none_of_them(tmp_path: Path, stack: ExitStack) -> None:
    same = [chapter(1, url=URL), chapter(2, url=URL), chapter(3), chapter(4, url="")]
    version_3(tmp_path, count=4, chapters=same)
    named = [one.get("source_chapter_id") for one in good(read(tmp_path, stack))[1:]]
    assert named == [None, None, "truyen/dau-pha/3.html", None]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"status": "Completed"}, {"status": 2}),
        ({"status": "Unknown"}, {"status": None}),
        ({"language": "Unknown"}, {"language": None}),
        ({"cover_url": "data:image/png;base64,AAAA"}, {"cover_url": None}),
        ({"tags": None, "novel_tags": ["A"], "genres": ["B"]}, {"genres": ["B", "A"]}),
        ({"tags": [f"{n}-{'x' * 200}" for n in range(99)]}, {}),
        ({"title": "Đ" * 400, "authors": ["A" * 400], "synopsis": "ấ" * 50_000}, {}),
        ({"title": "斗破苍穹"}, {"slug": "truyen-dau-pha"}),
        ({"aliases": ["Fights Break Sphere"]}, {"aliases": ["Fights Break Sphere"]}),
        ({"authors": "One Author", "authors_more": 7}, {"author_name": "One Author"}),
    ],
)
def test_whatever_the_facts_are_the_service_would_take_them(
    tmp_path: Path, stack: ExitStack, facts: dict[str, Any], expected: dict[str, Any]
) -> None:
    version_3(tmp_path, **facts)
    story = good(read(tmp_path, stack))[0]
    assert {name: story.get(name) for name in expected} == expected
    said: list[str] = []
    inputs = lightnovel_crawler.inputs(str(tmp_path), stack, source=None)
    batches = list(rehearse(inputs, Report(said.append), source=None))
    assert said == []
    assert [line.partition(":")[0] for line in batches] == ["stories batch 1", "chapters batch 1"]


@pytest.mark.parametrize(
    "meta",
    ["{", "[]", "{}", '{"novel": {}}', '{"novel": {"url": "x", "title": "T"}}', '{"url": 7, "title": []}'],
)
def test_a_meta_file_of_something_else_is_a_problem_of_that_file(tmp_path: Path, stack: ExitStack, meta: str) -> None:
    (tmp_path / "meta.json").write_text(meta)
    (only,) = read(tmp_path, stack)
    assert only.problem
    assert isinstance(items.from_line(only, source=None), items.Rejection)


def test_odd_members_do_no_harm(tmp_path: Path, stack: ExitStack) -> None:
    odd = [7, None, {"id": "x"}, {"id": -1}, {"serial": 1.5}, chapter(1, volume=None, title=None)]
    version_3(tmp_path, count=1, chapters=odd, volumes={"x": 1}, tags="none", authors={"a": 1})
    write(tmp_path / "json" / "00001.json", with_body(1))
    story, only = good(read(tmp_path, stack))
    assert "genres" not in story
    assert only["title"] == "Chương 1"


def test_a_damaged_chapter_file_is_a_problem_of_that_chapter(tmp_path: Path, stack: ExitStack) -> None:
    version_3(tmp_path)
    (tmp_path / "json" / "00002.json").write_text('{"body": "cut')
    lines = read(tmp_path, stack)
    assert [one["chapter_no"] for one in good(lines)[1:]] == [1, 3]
    (problem,) = [line for line in lines if line.problem]
    assert problem.place == str(tmp_path / "json" / "00002.json")


def test_a_folder_of_something_else_is_told_in_one_sentence(tmp_path: Path, stack: ExitStack) -> None:
    with pytest.raises(Problem, match=r"there is no meta\.json"):
        read(tmp_path, stack)
    (tmp_path / "x.zip").write_text("no archive")
    with pytest.raises(Problem, match="is not a zip archive"):
        read(tmp_path / "x.zip", stack)


def test_a_site_whose_name_is_too_long_wants_a_source(tmp_path: Path, stack: ExitStack) -> None:
    version_3(tmp_path, url=f"https://{'a' * 50}.example/x")
    (only,) = read(tmp_path, stack)
    assert "--source" in only.problem
