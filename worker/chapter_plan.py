"""What has to be written so that chapters are as their source has them now. Pure: rows and items in, a plan out.

A chapter is found by the source's id, else by its number; one that came without an id is adopted by the first item that
has its number and brings an id. Within a round each row is written once: a second item for it is deferred to the next
round, which sees what the first one wrote. Numbers and slugs are unique within a story: `seats` decides who gets them.

A source that puts a chapter between others gives all that follow new numbers, which come in several batches. So a
chapter that moves takes its new place also from one whose own news has not come yet, if what is known of that one is
older: it is hidden until they come. A chapter that is new takes no place from anybody: it waits.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

from store.chapters import ChapterRow, Wanted
from store.jobs import Job
from store.payloads import ChapterFrame
from worker import seats
from worker.seats import Claim

# Where chapters are put whose number another has: below any that a source gives.
ASIDE = Decimal(-1000)
MAX_SLUG_CHARACTERS = 191


@dataclass(frozen=True, slots=True)
class Item:
    job: Job
    story_id: int
    frame: ChapterFrame

    @property
    def at(self) -> datetime:
        return self.frame.updated_at_source.astimezone(UTC).replace(tzinfo=None)

    @property
    def wanted(self) -> Wanted:
        return self.story_id, self.frame.source_chapter_id, self.frame.chapter_no, self.frame.slug or None


@dataclass(frozen=True, slots=True)
class Change:
    item: Item
    before: ChapterRow | None
    after: ChapterRow
    has_new_body: bool


@dataclass(slots=True)
class Plan:
    stale: list[Item] = field(default_factory=list)
    unchanged: list[Item] = field(default_factory=list)
    refreshed: list[tuple[int, datetime]] = field(default_factory=list)
    """Rows that stay as they are, but for the time at which the source last changed them."""
    changes: list[Change] = field(default_factory=list)
    conflicts: list[tuple[Item, str]] = field(default_factory=list)
    """Items that cannot be written now, and why."""
    moves: list[tuple[int, Decimal, str]] = field(default_factory=list)
    """Rows (id, number, slug) that have to make room first, for a moment or for good."""
    hidden: list[ChapterRow] = field(default_factory=list)
    """Of those that make room, chapters that readers may have seen: gone until their source says where they are now."""
    deferred: list[Item] = field(default_factory=list)


def plan(
    items: Sequence[Item],
    rows: Sequence[ChapterRow],
    *,
    now: datetime,
    lowest: Mapping[int, Decimal],
    count_words: Callable[[Item], int],
) -> Plan:
    """Plan one round. `lowest` has the lowest number of each story that may need a place aside."""
    made = Plan()
    known = _Known(rows)
    aside = _Aside(lowest)
    changes: list[Change] = []
    seen: set[object] = set()
    refreshed: dict[int, datetime] = {}
    for item in sorted(items, key=lambda item: (item.at, item.job.id)):
        row = known.find(item)
        keys = _keys(item, row)
        if not seen.isdisjoint(keys):
            made.deferred.append(item)
            seen.update(keys)  # nothing newer overtakes it
            continue
        if row and row.at is not None and item.at < row.at:
            made.stale.append(item)
            continue
        change = _change(item, row, now=now, aside=aside, count_words=count_words)
        if row and replace(change.after, at=row.at) == row and not change.has_new_body:
            made.unchanged.append(item)
            if change.after.at is not None and change.after.at != row.at:
                refreshed[row.id] = change.after.at
        else:
            changes.append(change)
            seen.update(keys)
    made.refreshed += refreshed.items()
    _seat(made, changes, known, aside)
    return made


class _Known:
    """The rows that are there, by all that can identify them."""

    def __init__(self, rows: Sequence[ChapterRow]) -> None:
        self.rows = {row.id: row for row in rows}
        self._by_ref = {(row.story_id, row.ref): row for row in rows if row.ref is not None}
        self._by_number = {(row.story_id, row.number): row for row in rows}
        self.holders: dict[seats.Seat, int] = {seat: row.id for row in rows for seat in _seats(row)}

    def find(self, item: Item) -> ChapterRow | None:
        ref, number = item.frame.source_chapter_id, item.frame.chapter_no
        if ref is not None and (row := self._by_ref.get((item.story_id, ref))):
            return row
        row = None if number is None else self._by_number.get((item.story_id, number))
        return row if row and (ref is None or row.ref is None) else None


class _Aside:
    """Numbers for what has to be set aside, of each story one after the other."""

    def __init__(self, lowest: Mapping[int, Decimal]) -> None:
        self._last = {story_id: min(number, ASIDE) for story_id, number in lowest.items()}

    def next(self, story_id: int) -> Decimal:
        self._last[story_id] -= 1
        return self._last[story_id]


def may_need_aside(items: Sequence[Item], rows: Sequence[ChapterRow]) -> set[int]:
    """Stories of which something may have to be set aside: a chapter in another's place, or one that was never seen."""
    stories = {item.story_id for item in items if item.frame.deleted}
    if rows:
        known = _Known(rows)
        for item in items:
            row = known.find(item)
            holders = (known.holders.get(seat) for seat in _wanted_seats(item))
            if any(holder is not None and (row is None or holder != row.id) for holder in holders):
                stories.add(item.story_id)
    return stories


def _keys(item: Item, row: ChapterRow | None) -> list[object]:
    """What only one item of a round may have. A second one with the same id or number may be for the same chapter, once
    the first is written: when that adopts a row, or moves one to this number. And it must not get a slug first."""
    named = zip(("ref", "number", "slug"), item.wanted[1:], strict=True)
    keys: list[object] = [(kind, item.story_id, name) for kind, name in named if name is not None]
    return [row.id, *keys] if row else keys


def _change(
    item: Item, row: ChapterRow | None, *, now: datetime, aside: _Aside, count_words: Callable[[Item], int]
) -> Change:
    frame = item.frame
    if frame.deleted:
        if row is None:
            return Change(item, None, _tombstone(item, aside), has_new_body=False)
        after = replace(row, ref=row.ref or frame.source_chapter_id, is_deleted=True, at=item.at)
        return Change(item, row, after, has_new_body=False)
    assert frame.chapter_no is not None
    assert frame.content is not None
    published_at = frame.published_at and frame.published_at.astimezone(UTC).replace(tzinfo=None, microsecond=0)
    has_new_body = row is None or row.sha256 != frame.content.sha256
    after = ChapterRow(
        id=row.id if row else 0,
        story_id=item.story_id,
        ref=frame.source_chapter_id or (row.ref if row else None),
        number=frame.chapter_no,
        slug=frame.slug,
        title=frame.title,
        is_published=frame.is_published if frame.is_published is not None else row is None or row.is_published,
        word_count=count_words(item) if has_new_body or row is None else row.word_count,
        published_at=published_at or (row.published_at if row else None) or now.replace(microsecond=0),
        at=item.at,
        is_deleted=False,
        sha256=frame.content.sha256 if row is None else row.sha256,
    )
    return Change(item, row, after, has_new_body)


def _tombstone(item: Item, aside: _Aside) -> ChapterRow:
    """A chapter that was deleted before we ever saw it: kept, so that an older update that comes late finds out."""
    ref, number = item.frame.source_chapter_id, item.frame.chapter_no
    name = f"/{ref}" if ref is not None else f"#{number}"
    return ChapterRow(
        id=0,
        story_id=item.story_id,
        ref=ref,
        number=aside.next(item.story_id) if ref is not None or number is None else number,
        slug="~" + hashlib.sha256(name.encode()).hexdigest(),
        title="",
        is_published=True,
        word_count=0,
        published_at=None,
        at=item.at,
        is_deleted=True,
        sha256=None,
    )


def _seat(made: Plan, changes: Sequence[Change], known: _Known, aside: _Aside) -> None:
    """Give every change its number and slug, or find the conflict."""
    claims = [Claim(change.after.id, _seats(change.after)) for change in changes]
    deleted = {row.id for row in known.rows.values() if row.is_deleted}

    def gives_way(place: int, holder_id: int) -> bool:
        holder, moving = known.rows[holder_id], changes[place]
        # One without an id is known by its number alone, and would not be found again.
        is_older = holder.at is None or moving.item.at > holder.at
        return moving.before is not None and not moving.before.is_deleted and holder.ref is not None and is_older

    settled = seats.settle(claims, known.holders, may_be_set_aside=deleted, gives_way=gives_way)
    for place, change in enumerate(changes):
        if place in settled.refused:
            made.conflicts.append((change.item, _refusal(settled.refused[place], known)))
        else:
            made.changes.append(change)
    for row_id in sorted(settled.displaced):
        row = known.rows[row_id]
        slug = f"{row.slug[: MAX_SLUG_CHARACTERS - 21]}~{row.id}"
        made.moves.append((row.id, aside.next(row.story_id), slug))
        if not row.is_deleted:
            made.hidden.append(row)
    for place, row_id in enumerate(sorted(settled.moving), 1):
        made.moves.append((row_id, Decimal(-place) / 100, f"~{row_id}"))


def _seats(row: ChapterRow) -> tuple[seats.Seat, ...]:
    return ("number", row.story_id, row.number), ("slug", row.story_id, row.slug)


def _wanted_seats(item: Item) -> tuple[seats.Seat, ...]:
    return ("number", item.story_id, item.frame.chapter_no), ("slug", item.story_id, item.frame.slug)


def _refusal(seat: seats.Seat, known: _Known) -> str:
    assert isinstance(seat, tuple)
    kind, _, value = seat
    holder = known.rows.get(known.holders.get(seat, 0))
    whose = "another chapter of the same batch" if holder is None else f"chapter {holder.ref or holder.number}"
    return f"The {kind} {value} belongs to {whose} of this story."
