"""What has to be written so that stories are as their source has them now. Pure: rows and items in, a plan out.

Every story has a row when this is asked: one that is new has a placeholder. Optional fields that an item leaves out
stay as they are. A slug is unique within its source; one that a deleted story has is taken from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from store.jobs import Job
from store.payloads import StoryFrame
from store.story_rows import NOT_A_SLUG, Ref, SlugOwner, StoryRow
from worker import seats
from worker.seats import Claim

ONGOING = 1
DEFAULT_LANGUAGE = "vi"
MAX_SLUG_CHARACTERS = 191


@dataclass(frozen=True, slots=True)
class Item:
    job: Job
    frame: StoryFrame

    @property
    def at(self) -> datetime:
        return self.frame.updated_at_source.astimezone(UTC).replace(tzinfo=None)

    @property
    def ref(self) -> Ref:
        return self.job.unit.source, self.frame.source_story_id


@dataclass(frozen=True, slots=True)
class Change:
    item: Item
    before: StoryRow
    after: StoryRow


@dataclass(slots=True)
class Plan:
    stale: list[Item] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    """Also those of which only aliases or genres may change, or nothing: who writes them finds out."""
    conflicts: list[tuple[Item, str]] = field(default_factory=list)
    """Items whose slug another story has, and which."""
    renames: list[tuple[int, str]] = field(default_factory=list)
    """Rows (id, slug) that have to make room first, for a moment or for good."""
    empty: list[int] = field(default_factory=list)
    """Placeholders that are to go again."""


def rounds(items: Sequence[Item]) -> list[list[Item]]:
    """The items in rounds, in each of which a story occurs once; older updates first."""
    found: list[list[Item]] = []
    count: dict[Ref, int] = {}
    for item in sorted(items, key=lambda item: (item.at, item.job.id)):
        place = count[item.ref] = count.get(item.ref, -1) + 1
        if place == len(found):
            found.append([])
        found[place].append(item)
    return found


def plan(items: Sequence[Item], rows: Mapping[Ref, StoryRow], owners: Mapping[tuple[str, str], SlugOwner]) -> Plan:
    """Plan one round. `owners` has who holds the slugs that the items want."""
    made = Plan()
    changes = []
    for item in items:
        row = rows[item.ref]
        if row.at is not None and item.at < row.at:
            made.stale.append(item)
        else:
            changes.append(Change(item, row, _after(item, row)))
    claims = [Claim(change.after.id, ((change.after.source, change.after.slug),)) for change in changes]
    settled = seats.settle(
        claims,
        {seat: owner.id for seat, owner in owners.items()},
        may_be_set_aside={owner.id for owner in owners.values() if owner.is_deleted},
    )
    for place, change in enumerate(changes):
        if place not in settled.refused:
            made.changes.append(change)
            continue
        seat = (change.after.source, change.after.slug)
        whose = "another story of the same batch" if seat in settled.granted else f"story {owners[seat].ref}"
        made.conflicts.append((change.item, f"The slug {change.after.slug} belongs to {whose} of this source."))
        if change.before.is_placeholder:
            made.empty.append(change.before.id)
    slugs = {owner.id: slug for (_, slug), owner in owners.items()}
    for row_id in sorted(settled.displaced):
        made.renames.append((row_id, f"{slugs[row_id][: MAX_SLUG_CHARACTERS - 21]}{NOT_A_SLUG}{row_id}"))
    for row_id in sorted(settled.moving):
        made.renames.append((row_id, f"{NOT_A_SLUG}{row_id}"))
    return made


def _after(item: Item, row: StoryRow) -> StoryRow:
    frame = item.frame
    if frame.deleted:
        return replace(row, at=item.at, is_deleted=True)
    given = {name: getattr(frame, name) for name in frame.given if name not in ("aliases", "genres")}
    if row.is_placeholder:
        given = {"status": ONGOING, "language": DEFAULT_LANGUAGE} | given
    return replace(row, slug=frame.slug, title=frame.title, at=item.at, is_deleted=False, **given)
