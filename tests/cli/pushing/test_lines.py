import gzip
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zstandard

from cli.pushing import lines
from cli.pushing.lines import JsonLines

TEXT = b'{"a": 1}\n{"b": "\xc4\x90\xe1\xba\xa5u"}\n'
DATA = [{"a": 1}, {"b": "Đấu"}]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def data(one: JsonLines) -> list[object]:
    return [line.data for line in one.lines()]


def two_frames(text: bytes) -> bytes:
    compress = zstandard.ZstdCompressor().compress
    return compress(text[:11]) + compress(text[11:])


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.ZstdCompressor().compress, two_frames])
def test_files_are_read_whatever_compresses_them_and_as_often_as_wanted(
    tmp_path: Path, stack: ExitStack, compress: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "crawl.jsonl"
    file.write_bytes(compress(TEXT))
    one = JsonLines(str(file), stack)
    assert data(one) == DATA
    assert data(one) == DATA


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_standard_input_can_be_read_again(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack, compress: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(compress(TEXT))))
    one = JsonLines("-", stack)
    assert data(one) == DATA
    assert data(one) == DATA
    assert [line.place for line in one.lines()] == ["stdin:1", "stdin:2"]


def test_a_pipe_can_be_read_again(tmp_path: Path, stack: ExitStack) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(TEXT,))
    writer.start()
    one = JsonLines(str(pipe), stack)
    writer.join()
    assert data(one) == DATA
    assert data(one) == DATA


def test_a_bad_line_is_named_and_the_others_are_read(tmp_path: Path, stack: ExitStack) -> None:
    file = tmp_path / "crawl.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n   \n{"a": \n["a"]\n{"a": "\\ud800"}\n{"a": "\xff"}\n{"a": 2}')
    found = list(JsonLines(str(file), stack).lines())
    assert [(line.place.rpartition(":")[2], line.data) for line in found if line.data] == [
        ("1", {"a": 1}),
        ("8", {"a": 2}),
    ]
    problems = {line.place: line.problem for line in found if line.data is None}
    assert list(problems) == [f"{file}:{number}" for number in (4, 5, 6, 7)]
    assert problems[f"{file}:4"].startswith("not JSON: ")
    assert problems[f"{file}:5"].startswith("not a JSON object")


def test_a_line_that_is_too_long_is_passed_over_without_being_held(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    file = tmp_path / "crawl.jsonl"
    file.write_bytes(b'{"a": 1}\n' + b"x" * (3 << 20) + b"\n" + b'{"a": 2}\n' + b"y" * (2 << 20))
    found = list(JsonLines(str(file), stack).lines())
    assert [line.data for line in found] == [{"a": 1}, None, {"a": 2}, None]
    assert found[1].problem == found[3].problem == "the line is longer than 1 MiB"


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_compressed_file_that_ends_too_early_says_so_after_what_it_has(
    tmp_path: Path, stack: ExitStack, compress: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "crawl.jsonl"
    numbers = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, os.urandom(8).hex().encode()) for n in range(20_000))
    whole = compress(numbers)
    file.write_bytes(whole[: len(whole) // 2])
    *read, last = JsonLines(str(file), stack).lines()
    assert 0 < len(read) < 20_000
    assert all(line.data for line in read)
    assert last.problem.startswith("the file cannot be read further: ")


def test_a_damaged_compressed_file_says_so(tmp_path: Path, stack: ExitStack) -> None:
    for number, magic in enumerate([b"\x1f\x8b", b"\x28\xb5\x2f\xfd"]):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(magic + b"nonsense" * 10)
        (only,) = JsonLines(str(file), stack).lines()
        assert only.problem.startswith("the file cannot be read further: ")


def test_an_empty_file_has_no_lines(tmp_path: Path, stack: ExitStack) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert data(JsonLines(str(tmp_path / "empty"), stack)) == []
