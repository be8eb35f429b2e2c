"""The chapters of a story in memory: what a plan says is carried out as the handler does it, row by row, and nothing
may break a unique key, not even for a moment."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from store.chapters import ChapterRow
from store.jobs import Job
from store.payloads import CHAPTERS, ChapterFrame, Content
from store.units import Unit
from worker import chapter_plan
from worker.chapter_plan import Item, Plan

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 6, 1)  # as the database says it
STORY = 7

_job_ids = itertools.count(1)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def stored(minutes: float) -> datetime:
    """A time as the table has it."""
    return at(minutes).replace(tzinfo=None)


def chapter(
    ref: str | None,
    number: str | int,
    slug: str | None = None,
    *,
    time: float = 0,
    body: str = "body",
    title: str = "title",
    story_id: int = STORY,
    is_published: bool | None = None,
    published_at: datetime | None = None,
) -> Item:
    raw = body.encode()
    return _item(
        story_id,
        ChapterFrame(
            source_story_id=str(story_id),
            updated_at_source=at(time),
            source_chapter_id=ref,
            chapter_no=Decimal(number),
            slug=slug or f"c-{number}",
            title=title,
            is_published=is_published,
            published_at=published_at,
            content=Content(raw, "none", hashlib.sha256(raw).digest(), len(raw)),
        ),
    )


def deletion(ref: str | None, number: str | int | None = None, *, time: float = 0) -> Item:
    return _item(
        STORY,
        ChapterFrame(
            source_story_id=str(STORY),
            updated_at_source=at(time),
            source_chapter_id=ref,
            chapter_no=None if number is None else Decimal(number),
            deleted=True,
        ),
    )


def _item(story_id: int, frame: ChapterFrame) -> Item:
    job_id = next(_job_ids)
    unit = Unit(job_id, CHAPTERS, "source", "request", 1, 0, 0, 1, 100, 0, 0, NOW, NOW)
    return Item(Job(job_id, unit, 0, 100, frame), story_id, frame)


class Duplicate(Exception):
    """A unique key would be broken."""


class Table:
    def __init__(self) -> None:
        self.rows: dict[int, ChapterRow] = {}
        self._ids = itertools.count(1)
        self.last: Plan | None = None
        self.hidden: set[int] = set()
        """Rows that were ever hidden."""

    def push(self, *items: Item) -> list[tuple[Item, str]]:
        """Apply items as the handler does, in rounds; returns those that met a conflict, and which."""
        waiting: Sequence[Item] = items
        conflicts: list[tuple[Item, str]] = []
        while waiting:
            made = self.plan(waiting)
            self.carry_out(made)
            assert len(made.deferred) < len(waiting)
            waiting = made.deferred
            if made.changes:
                waiting = [*waiting, *(item for item, _ in made.conflicts)]
            else:
                conflicts += made.conflicts
        return conflicts

    def plan(self, items: Sequence[Item]) -> Plan:
        rows = [row for row in self.rows.values() if any(_concerns(item, row) for item in items)]
        lowest = {
            story_id: min((row.number for row in self.rows.values() if row.story_id == story_id), default=Decimal(0))
            for story_id in chapter_plan.may_need_aside(items, rows)
        }
        self.last = chapter_plan.plan(
            items, rows, now=NOW, lowest=lowest, count_words=lambda item: len(item.frame.title)
        )
        return self.last

    def carry_out(self, made: Plan) -> None:
        for row_id, number, slug in sorted(made.moves):
            self._put(replace(self.rows[row_id], number=number, slug=slug))
        for row in made.hidden:
            self.rows[row.id] = replace(self.rows[row.id], is_deleted=True)
            self.hidden.add(row.id)
        for row_id, time in made.refreshed:
            self._put(replace(self.rows[row_id], at=time))
        for change in made.changes:
            if change.before is None:
                self._put(_with_body(replace(change.after, id=next(self._ids)), change))
        for change in made.changes:
            if change.before is not None:
                assert change.after.id in self.rows
                self._put(_with_body(change.after, change))

    def _put(self, row: ChapterRow) -> None:
        for other in self.rows.values():
            if other.id != row.id and set(_unique(row)) & set(_unique(other)):
                raise Duplicate(f"{row} and {other}")
        self.rows[row.id] = row

    def living(self) -> list[tuple[str | None, str, str]]:
        """Source's id, number and slug of chapters that are not deleted, in order."""
        rows = sorted((row for row in self.rows.values() if not row.is_deleted), key=lambda row: row.number)
        return [(row.ref, str(row.number.normalize().__format__("f")), row.slug) for row in rows]

    def meaning(self) -> set[ChapterRow]:
        """All rows, but for ids and for what a row is called that was set aside."""
        return {_without_place(row) for row in self.rows.values()}


def _with_body(row: ChapterRow, change: chapter_plan.Change) -> ChapterRow:
    content = change.item.frame.content
    return replace(row, sha256=content.sha256) if change.has_new_body and content else row


def _concerns(item: Item, row: ChapterRow) -> bool:
    story_id, ref, number, slug = item.wanted
    return row.story_id == story_id and (
        (ref is not None and row.ref == ref) or row.number == number or (slug is not None and row.slug == slug)
    )


def _unique(row: ChapterRow) -> Iterable[tuple[object, ...]]:
    yield "number", row.story_id, row.number
    yield "slug", row.story_id, row.slug
    if row.ref is not None:
        yield "ref", row.story_id, row.ref


def _without_place(row: ChapterRow) -> ChapterRow:
    is_aside = row.number <= chapter_plan.ASIDE
    return replace(row, id=0, number=Decimal(0) if is_aside else row.number, slug="~" if "~" in row.slug else row.slug)
