"""Imports what lightnovel-crawler writes: a folder with meta.json and a JSON file for each chapter, or its .json.zip.

Three layouts are known. Versions 2 and 3 keep chapters in `json/00001.json` or `json/Volume 01/00001.json`, with the
text in `body`; the facts of the novel are the members of meta.json itself (2) or of its member `novel` (3). Version 4
writes an archive, chapters in `001/00001.json` with the text in `content`, and lists them below their volumes.
"""

import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import click

from cli.pushing import addresses
from cli.pushing.lines import MAX_LINE_BYTES, Line, parsed
from runtime.problems import Problem

META = "meta.json"
MAX_META_BYTES = 256 << 20
MAX_SOURCE = 40
MAX_ID = 191
MAX_TITLE = 255
MAX_AUTHOR = 191
MAX_COVER_URL = 1024
MAX_SUMMARY_BYTES = 65_535
MAX_GENRES, MAX_GENRE = 50, 120
MAX_ALIASES = 100

STATUSES = {"ongoing": 1, "completed": 2, "hiatus": 3, "dropped": 4}

# What it writes where a chapter should be, when it could not be had.
_FAILED = re.compile(r"\s*(<h1>[^<]*</h1>)?\s*<p><i>Failed to download chapter body</i></p>")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{1,6})?")
_WEB = re.compile(r"https?://[^\s\x00-\x1f]+")


class Store(Protocol):
    """Where the files of one novel are."""

    def read(self, name: str, *, max_bytes: int) -> bytes | None:
        """A file, if it is there; ValueError if it is larger than that."""

    def modified(self, name: str) -> datetime: ...

    def place(self, name: str) -> str:
        """What a person calls the file."""


class Folder:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str, *, max_bytes: int) -> bytes | None:
        path = self._directory / name
        try:
            if path.stat().st_size > max_bytes:
                raise ValueError(f"the file is larger than {max_bytes >> 20} MiB")
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, name: str) -> datetime:
        return datetime.fromtimestamp((self._directory / name).stat().st_mtime, UTC)

    def place(self, name: str) -> str:
        return click.format_filename(self._directory / name)


class Archive:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        try:
            self._zip = stack.enter_context(zipfile.ZipFile(path))
        except zipfile.BadZipFile as error:
            raise Problem(f"{path} is not a zip archive that can be read: {error}.") from None

    def read(self, name: str, *, max_bytes: int) -> bytes | None:
        try:
            if self._zip.getinfo(name).file_size > max_bytes:
                raise ValueError(f"the file is larger than {max_bytes >> 20} MiB")
            return self._zip.read(name)
        except KeyError:
            return None
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise ValueError(f"the archive cannot be read: {error}") from None

    def modified(self, name: str) -> datetime:
        try:  # the archive has local times, to two seconds
            return datetime(*self._zip.getinfo(name).date_time).astimezone(UTC)
        except ValueError:
            return datetime.fromtimestamp(self._path.stat().st_mtime, UTC)

    def place(self, name: str) -> str:
        return click.format_filename(self._path / name)


def is_output(name: str) -> bool:
    """Whether an argument of `novel push` names output of lightnovel-crawler."""
    path = Path(name)
    return path.is_dir() or path.name == META or path.suffix == ".zip"


def inputs(name: str, stack: ExitStack, *, source: str | None) -> "list[CrawledNovel]":
    """Every novel in a folder and below it, or the one that a meta.json or archive is of."""
    path = Path(name)
    if not path.is_dir():
        folder = Folder(path.parent) if path.name == META else Archive(path, stack)
        return [CrawledNovel(folder, source=source)]
    found = sorted(Path(parent) for parent, _, files in os.walk(path) if META in files)
    if not found:
        raise Problem(f"there is no {META} in {path} or below it: is that a folder that lightnovel-crawler wrote?")
    return [CrawledNovel(Folder(directory), source=source) for directory in found]


class CrawledNovel:
    """One novel: its story and its chapters, as items to push."""

    def __init__(self, store: Store, *, source: str | None) -> None:
        self._store = store
        self._source = source

    def lines(self, *, with_chapters: bool = True) -> Iterator[Line]:
        place = self._store.place(META)
        try:
            text = self._store.read(META, max_bytes=MAX_META_BYTES)
        except ValueError as error:
            yield Line(place, problem=str(error))
            return
        meta = parsed(place, text) if text is not None else Line(place, problem=f"there is no {META}")
        if meta.data is None:
            yield meta
            return
        novel = meta.data["novel"] if isinstance(meta.data.get("novel"), dict) else meta.data
        try:
            story = self._story(novel)
        except ValueError as error:
            yield Line(place, problem=str(error))
            return
        yield Line(place, story)
        if with_chapters:
            yield from self._chapters(novel, story)

    def _story(self, novel: Mapping[str, Any]) -> dict[str, Any]:
        url, title = _text(novel.get("url")), _text(novel.get("title"))
        if not url or not title:
            raise ValueError("this is no meta.json of lightnovel-crawler: it has no url and title of a novel")
        identifier = addresses.identifier(url, longest=MAX_ID)
        story: dict[str, Any] = {
            "source": self._source or _source(url),
            "source_story_id": identifier,
            "slug": addresses.slug(title if addresses.keeps_letters(title) else f"{title} {identifier}") or "truyen",
            "title": title[:MAX_TITLE],
            "updated_at_source": self._updated_at(novel, META),
        }
        authors = novel.get("authors") or novel.get("author")
        names = [_text(author) for author in authors] if isinstance(authors, list) else [_text(authors)]
        cover = _text(novel.get("cover_url") or novel.get("cover"))
        language = _text(novel.get("language"))
        optional = {
            "author_name": ", ".join(filter(None, names))[:MAX_AUTHOR].strip(),
            "status": STATUSES.get(_text(novel.get("status")).lower()),
            "cover_url": cover if _WEB.fullmatch(cover) and len(cover) <= MAX_COVER_URL else None,
            "summary": _cut(_text(novel.get("synopsis") or novel.get("description")), MAX_SUMMARY_BYTES),
            "language": language if _LANGUAGE.fullmatch(language) else None,
            "aliases": _names(novel, "aliases", longest=MAX_TITLE)[:MAX_ALIASES],
            "genres": _names(novel, "genres", "tags", "novel_tags", longest=MAX_GENRE)[:MAX_GENRES],
        }
        return story | {name: value for name, value in optional.items() if value}

    def _chapters(self, novel: Mapping[str, Any], story: Mapping[str, Any]) -> Iterator[Line]:
        listed = list(_listed(novel))
        times_seen = Counter(_chapter_id(chapter) for chapter, _ in listed)
        for chapter, volume in listed:
            number = chapter.get("serial", chapter.get("id"))
            if not isinstance(number, int) or number < 0:
                yield Line(self._store.place(META), problem=f"a chapter has no number: {_text(chapter.get('title'))!r}")
                continue
            name, line = self._text_of(number, volume)
            if line.data is None:
                yield line
                continue
            identifier = _chapter_id(chapter)
            item = {
                "source": story["source"],
                "source_story_id": story["source_story_id"],
                "chapter_no": number,
                "slug": f"chuong-{number}",
                "title": _text(chapter.get("title"))[:MAX_TITLE] or f"Chương {number}",
                "content_raw": _body(line.data),
                "updated_at_source": self._updated_at(line.data, name),
            }
            if identifier and times_seen[identifier] == 1:
                item["source_chapter_id"] = identifier
            yield Line(line.place, item)

    def _text_of(self, number: int, volume: object) -> tuple[str, Line]:
        """The file that has a chapter's text, and what it says; a line without data if there is none."""
        found = Line(self._store.place(f"json/{number:05}.json"), skipped="no text")
        for name in _file_names(number, volume):
            place = self._store.place(name)
            try:
                text = self._store.read(name, max_bytes=MAX_LINE_BYTES)
            except ValueError as error:
                return name, Line(place, problem=str(error))
            if text is None:
                continue
            found = parsed(place, text)
            if found.data is None or _body(found.data):
                return name, found
            found = Line(place, skipped="no text")
        return "", found

    def _updated_at(self, data: Mapping[str, Any], name: str) -> str:
        """When the crawler last changed it: version 4 says so, in milliseconds; otherwise the file's time."""
        told = data.get("updated_at")
        try:
            time = datetime.fromtimestamp(told / 1000, UTC) if isinstance(told, int) else self._store.modified(name)
        except (OverflowError, ValueError, OSError):
            time = self._store.modified(name)
        return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _listed(novel: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], object]]:
    """Chapters that meta.json lists, each with the number of its volume."""
    for chapter in _objects(novel.get("chapters")):
        yield chapter, chapter.get("volume")
    for volume in _objects(novel.get("volumes")):
        for chapter in _objects(volume.get("chapters")):
            yield chapter, volume.get("serial", volume.get("id"))


def _file_names(number: int, volume: object) -> Iterator[str]:
    yield f"json/{number:05}.json"
    if isinstance(volume, int):
        yield f"json/Volume {volume:02}/{number:05}.json"
        yield f"{volume:03}/{number:05}.json"


def _body(data: Mapping[str, Any]) -> str:
    body = data.get("body") or data.get("content")
    return body if isinstance(body, str) and body.strip() and not _FAILED.match(body) else ""


def _chapter_id(chapter: Mapping[str, Any]) -> str:
    url = _text(chapter.get("url"))
    try:
        return addresses.identifier(url, longest=MAX_ID) if url else ""
    except ValueError:
        return ""


def _source(url: str) -> str:
    domain = addresses.domain(url)
    if len(domain) > MAX_SOURCE:
        raise ValueError(f"{domain} is longer than the {MAX_SOURCE} characters of a source: name one with --source")
    return domain


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))


def _names(novel: Mapping[str, Any], *members: str, longest: int) -> list[str]:
    found: dict[str, None] = {}
    for member in members:
        value = novel.get(member)
        for name in value if isinstance(value, list) else ():
            if text := _text(name)[:longest].strip():
                found[text] = None
    return list(found)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _cut(text: str, longest_bytes: int) -> str:
    return text.encode()[:longest_bytes].decode(errors="ignore")
