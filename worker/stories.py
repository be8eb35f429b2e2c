"""Stories: found, compared, and written as a set, with their aliases and genres."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from store import events, folding, payloads, story_labels, story_rows, units
from store.connection import Connection
from store.jobs import Job
from store.payloads import StoryFrame
from store.pool import Pool
from store.story_rows import SlugOwner
from worker import genres, story_plan
from worker.handler import Applied, Done, GiveUp, Outcome, unreadable
from worker.story_plan import Change, Item

SLUG_CONFLICT = "slug_conflict"


class Stories:
    job_type = payloads.STORIES

    async def prepare(self, pool: Pool, jobs: Sequence[Job]) -> None:
        """There is nothing to prepare."""

    async def apply(self, conn: Connection, jobs: Sequence[Job]) -> Applied:
        items = [Item(job, job.frame) for job in jobs if isinstance(job.frame, StoryFrame)]
        applied = Applied([unreadable(job) for job in jobs if not isinstance(job.frame, StoryFrame)])
        if not items:
            return applied
        now = await story_rows.now(conn)
        ids = await self._ids(conn, items, now)
        await story_rows.lock(conn, list(ids.values()))
        empty: set[int] = set()
        for some in story_plan.rounds(items):
            # Deletions first: what is deleted gives its slug up, also to a story of the same batch.
            for part in ([item for item in some if item.frame.deleted], [i for i in some if not i.frame.deleted]):
                if part:
                    applied += await self._round(conn, part, ids, now, empty)
        await story_rows.delete(conn, list(empty))
        return applied

    async def committed(self, pool: Pool, outcomes: Sequence[Outcome]) -> Collection[str]:
        """Chapters may wait for these stories."""
        there = [
            (outcome.job.unit.source, outcome.job.frame.source_story_id)
            for outcome in outcomes
            if isinstance(outcome, Done) and isinstance(outcome.job.frame, StoryFrame)
        ]
        released = await pool.transaction(lambda conn: units.release_waiting(conn, there)) if there else 0
        return (payloads.CHAPTERS,) if released else ()

    async def _ids(self, conn: Connection, items: Sequence[Item], now: datetime) -> dict[story_rows.Ref, int]:
        refs = [item.ref for item in items]
        ids = await story_rows.find(conn, refs)
        missing = [ref for ref in refs if ref not in ids]
        if missing:
            await story_rows.make(conn, missing, at=now)
            ids = await story_rows.find(conn, refs)
        return ids

    async def _round(
        self, conn: Connection, items: Sequence[Item], ids: dict[story_rows.Ref, int], now: datetime, empty: set[int]
    ) -> Applied:
        """Write one round. `empty` has the placeholders that are still empty: a later round may fill them."""
        rows = {(row.source, row.ref): row for row in await story_rows.read(conn, [ids[item.ref] for item in items])}
        wanted = [(item.ref[0], item.frame.slug) for item in items if not item.frame.deleted]
        owners = await _owners(conn, wanted, held=set(ids.values())) if wanted else {}
        plan = story_plan.plan(items, rows, owners)
        await story_rows.rename(conn, plan.renames)
        empty |= set(plan.empty)
        empty -= {change.after.id for change in plan.changes}
        changed = await _write_labels(conn, plan.changes, now)
        await _write_rows(conn, plan.changes, changed, now)
        applied = Applied(
            [
                *(Done(item.job, is_stale=True) for item in plan.stale),
                *(Done(change.item.job) for change in plan.changes),
                *(GiveUp(item.job, SLUG_CONFLICT, message) for item, message in plan.conflicts),
            ]
        )
        for change in plan.changes:
            if _differs(change) or change.after.id in changed:
                applied.touched.add(change.after.id)
                kind = events.of_story(was_visible=change.before.is_visible, is_visible=change.after.is_visible)
                if kind:
                    applied.events.append(events.New(kind, change.after.id))
        return applied


async def _owners(
    conn: Connection, slugs: Sequence[tuple[str, str]], *, held: set[int]
) -> dict[tuple[str, str], SlugOwner]:
    """Who has these slugs. A deleted story may lose its slug: it is locked, so that it does not come back meanwhile."""
    while True:
        owners = await story_rows.by_slug(conn, slugs)
        others = {owner.id for owner in owners.values() if owner.is_deleted} - held
        if not others:
            return owners
        await story_rows.lock(conn, list(others))
        held |= others


def _differs(change: Change) -> bool:
    return replace(change.after, at=change.before.at) != change.before


async def _write_rows(conn: Connection, changes: Sequence[Change], labelled: set[int], now: datetime) -> None:
    """Write rows that changed, or whose labels did, with their words for search."""
    written = [change.after for change in changes if _differs(change) or change.after.id in labelled]
    refreshed = [
        (change.after.id, change.item.at)
        for change in changes
        if change.after.at != change.before.at and not _differs(change) and change.after.id not in labelled
    ]
    await story_rows.refresh(conn, refreshed)
    if not written:
        return
    aliases = await story_labels.aliases(conn, [row.id for row in written])
    search_texts = [
        folding.search_text(row.title, row.title_original, row.author_name, *aliases.get(row.id, ())) for row in written
    ]
    await story_rows.write(conn, written, search_texts, at=now)


async def _write_labels(conn: Connection, changes: Sequence[Change], now: datetime) -> set[int]:
    """Replace aliases and genres where an item names them and they differ; returns the stories that changed."""
    living = [change for change in changes if not change.item.frame.deleted]
    changed: set[int] = set()
    with_aliases = {c.after.id: c.item.frame.aliases for c in living if c.item.frame.aliases is not None}
    if with_aliases:
        present = await story_labels.aliases(conn, list(with_aliases))
        wanted = {i: names for i, names in with_aliases.items() if list(names) != present.get(i, [])}
        # The table's collation decides which are the same, and only it knows.
        distinct = await story_labels.distinct_aliases(conn, wanted)
        new = {story_id: names for story_id, names in distinct.items() if names != present.get(story_id, [])}
        await story_labels.replace_aliases(conn, new)
        changed |= set(new)
    with_genres = {c.after.id: c.item.frame.genres for c in living if c.item.frame.genres is not None}
    if with_genres:
        names = {genres.slug(name): name for some in with_genres.values() for name in some}
        known = await story_labels.genre_ids(conn, names, at=now) if names else {}
        present_genres = await story_labels.genres(conn, list(with_genres))
        new_genres = {
            story_id: wanted_ids
            for story_id, some in with_genres.items()
            if (wanted_ids := {known[genres.slug(name)] for name in some}) != present_genres.get(story_id, set())
        }
        await story_labels.replace_genres(conn, new_genres)
        changed |= set(new_genres)
    return changed
