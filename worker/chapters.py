"""Chapters: found, compared, and written as a set, with their bodies and the versions of those."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from store import bodies, chapter_bodies, chapters, events, payloads, story_rows, units
from store.chapter_bodies import Body
from store.chapters import ChapterRow
from store.connection import Connection
from store.jobs import Job
from store.payloads import ChapterFrame, Content
from store.pool import Pool
from worker import chapter_plan, html
from worker.chapter_plan import Change, Item, Plan
from worker.handler import Applied, Done, Outcome, TryAgain, unreadable

STORY_NOT_FOUND = "story_not_found"
CHAPTER_CONFLICT = "chapter_conflict"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is made of a body before it is stored."""

    html: bytes
    """Compressed like the body itself."""
    words: int


class Chapters:
    """Of one loop: it keeps what it has prepared for the set under way."""

    job_type = payloads.CHAPTERS

    def __init__(self, *, max_versions: int) -> None:
        self._max_versions = max_versions
        self._prepared: dict[int, Prepared] = {}
        """By job: kept while the transaction may run again."""

    async def prepare(self, pool: Pool, jobs: Sequence[Job]) -> None:
        """Sanitise and count bodies that no chapter has: most likely they are new."""
        self._prepared = {}  # also of a set that was given up
        contents = {job.id: content for job in jobs if (content := _content(job))}
        if not contents:
            return
        async with pool.reading() as conn:
            known = await chapter_bodies.known(conn, {content.sha256 for content in contents.values()})
        new = {job_id: content for job_id, content in contents.items() if content.sha256 not in known}
        self._prepared = await asyncio.to_thread(lambda: {job_id: _prepare(new[job_id]) for job_id in new})

    async def apply(self, conn: Connection, jobs: Sequence[Job]) -> Applied:
        frames = {job: job.frame for job in jobs if _is_readable(job) and isinstance(job.frame, ChapterFrame)}
        applied = Applied([unreadable(job) for job in jobs if job not in frames])
        if not frames:
            return applied
        ids = await story_rows.find(conn, [(job.unit.source, frame.source_story_id) for job, frame in frames.items()])
        items = []
        for job, frame in frames.items():
            story_id = ids.get((job.unit.source, frame.source_story_id))
            if story_id is None:
                applied.outcomes.append(_waits(job, frame))
            else:
                items.append(Item(job, story_id, frame))
        if items:
            visible = await story_rows.lock(conn, [item.story_id for item in items])
            applied += await self._write(conn, items, visible)
        return applied

    async def committed(self, pool: Pool, outcomes: Sequence[Outcome]) -> Collection[str]:
        """A story may have come while we found that it was not there: then nobody else would wake its chapters."""
        self._prepared = {}
        waited_for = [
            (outcome.job.unit.source, outcome.waits_for_story)
            for outcome in outcomes
            if isinstance(outcome, TryAgain) and outcome.waits_for_story is not None
        ]
        released = await pool.transaction(lambda conn: units.release_waiting(conn, waited_for)) if waited_for else 0
        return (payloads.CHAPTERS,) if released else ()

    async def _write(self, conn: Connection, items: Sequence[Item], visible: Collection[int]) -> Applied:
        """Write in rounds. `visible` has the stories that readers see."""
        now = await story_rows.now(conn)
        applied = Applied()
        changes: list[tuple[Change, int]] = []
        hidden: list[ChapterRow] = []
        while items:
            plan = await self._plan(conn, items, now)
            changes += await self._carry_out(conn, plan, now)
            hidden += plan.hidden
            applied.outcomes += [Done(item.job, is_stale=True) for item in plan.stale]
            applied.outcomes += [Done(item.job) for item in plan.unchanged]
            applied.outcomes += [Done(change.item.job) for change in plan.changes]
            # What was in the way may have gone with the changes: a chapter was deleted, or got another number. Without
            # any, newer items must not wait for good behind older ones of their chapters.
            refused = [] if plan.changes else _before(plan.conflicts, plan.deferred) or plan.conflicts
            applied.outcomes += [TryAgain(item.job, CHAPTER_CONFLICT, message) for item, message in refused]
            settled = {item.job for item, _ in refused}
            items = [*plan.deferred, *(item for item, _ in plan.conflicts if item.job not in settled)]
        is_news = _announce(applied, changes, hidden, visible)
        await story_rows.bump(conn, list(is_news.items()), at=now)
        return applied

    async def _plan(self, conn: Connection, items: Sequence[Item], now: datetime) -> Plan:
        rows = await chapters.find(conn, [item.wanted for item in items])
        lowest = await chapters.lowest_numbers(conn, chapter_plan.may_need_aside(items, rows))
        return chapter_plan.plan(
            items, rows, now=now, lowest=lowest, count_words=lambda item: self._made_of(item).words
        )

    async def _carry_out(self, conn: Connection, plan: Plan, now: datetime) -> list[tuple[Change, int]]:
        """Write what the plan says; returns the changes with the ids of their chapters."""
        await chapters.move(conn, plan.moves)
        await chapters.hide(conn, [row.id for row in plan.hidden], at=now)
        await chapters.refresh(conn, plan.refreshed)
        new = [change for change in plan.changes if change.before is None]
        await chapters.insert(conn, [change.after for change in new], at=now)
        await chapters.write(conn, [change.after for change in plan.changes if change.before is not None], at=now)
        numbers = [(change.after.story_id, change.after.number) for change in new]
        ids = await chapters.ids(conn, numbers) if numbers else {}
        written = [
            (change, change.after.id or ids[change.after.story_id, change.after.number]) for change in plan.changes
        ]
        with_bodies = [(change, chapter_id) for change, chapter_id in written if change.has_new_body]
        had_another = [chapter_id for change, chapter_id in with_bodies if change.before and change.before.sha256]
        await chapter_bodies.keep(conn, had_another, at=now, most=self._max_versions)
        await chapter_bodies.write(conn, [self._body(change, chapter_id) for change, chapter_id in with_bodies], at=now)
        return written

    def _made_of(self, item: Item) -> Prepared:
        if item.job.id not in self._prepared:
            assert item.frame.content is not None
            self._prepared[item.job.id] = _prepare(item.frame.content)
        return self._prepared[item.job.id]

    def _body(self, change: Change, chapter_id: int) -> Body:
        content = change.item.frame.content
        assert content is not None
        made = self._made_of(change.item)
        return Body(chapter_id, content.stored, made.html, content.sha256, content.size, content.encoding)


def _before(conflicts: Sequence[tuple[Item, str]], deferred: Sequence[Item]) -> list[tuple[Item, str]]:
    """Those of these conflicts that a deferred item of the same chapter waits for."""
    keys = {key for item in deferred for key in _names(item)}
    return [(item, message) for item, message in conflicts if not keys.isdisjoint(_names(item))]


def _names(item: Item) -> set[tuple[int, object]]:
    return {(item.story_id, name) for name in (item.frame.source_chapter_id, item.frame.chapter_no) if name is not None}


def _announce(
    applied: Applied, changes: Sequence[tuple[Change, int]], hidden: Sequence[ChapterRow], visible: Collection[int]
) -> dict[int, bool]:
    """Note what changed; returns the stories, and of each whether readers got something new.

    Of a story that readers do not see, they see no chapter either.
    """
    is_news = dict.fromkeys((row.story_id for row in hidden), False)
    applied.events += [
        events.New(events.CHAPTER_DELETED, row.story_id, row.id)
        for row in hidden
        if row.is_visible and row.story_id in visible
    ]
    for change, chapter_id in changes:
        story_id = change.after.story_id
        was_visible = change.before is not None and change.before.is_visible
        kind = events.of_chapter(was_visible=was_visible, is_visible=change.after.is_visible)
        is_news[story_id] = is_news.get(story_id, False) or kind == events.CHAPTER_CREATED
        if kind and story_id in visible:
            applied.events.append(events.New(kind, story_id, chapter_id))
    applied.touched |= set(is_news)
    return is_news


def _content(job: Job) -> Content | None:
    return job.frame.content if isinstance(job.frame, ChapterFrame) else None


def _is_readable(job: Job) -> bool:
    """Whether an item has all that its kind needs: the door has seen to it, but a payload can be damaged."""
    frame = job.frame
    if not isinstance(frame, ChapterFrame):
        return False
    if frame.deleted:
        return frame.source_chapter_id is not None or frame.chapter_no is not None
    return frame.chapter_no is not None and frame.content is not None


def _prepare(content: Content) -> Prepared:
    made = html.prepare(bodies.decompress(content.stored, content.encoding))
    return Prepared(bodies.compress(made.html, content.encoding), made.words)


def _waits(job: Job, frame: ChapterFrame) -> TryAgain:
    return TryAgain(
        job,
        STORY_NOT_FOUND,
        f"The story {frame.source_story_id} of the source {job.unit.source} is not there yet. Push it too.",
        waits_for_story=frame.source_story_id,
    )
