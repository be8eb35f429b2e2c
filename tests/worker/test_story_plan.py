"""What has to be written so that stories are as their source has them now."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from store.jobs import Job
from store.payloads import STORIES, StoryFrame
from store.story_rows import NOT_A_SLUG, Ref, SlugOwner, StoryRow, placeholder_slug
from store.units import Unit
from worker import story_plan
from worker.story_plan import Item, Plan

START = datetime(2026, 1, 1, tzinfo=UTC)
_job_ids = itertools.count(1)


def story(ref: str, slug: str = "", *, time: float = 0, source: str = "source", **fields: Any) -> Item:
    """Optional fields only where they are named."""
    frame = StoryFrame(
        source_story_id=ref,
        updated_at_source=START + timedelta(minutes=time),
        slug=slug or f"truyen-{ref}",
        title=fields.pop("title", "Truyện"),
        given=tuple(fields),
        **fields,
    )
    return _item(frame, source)


def deletion(ref: str, *, time: float = 0) -> Item:
    frame = StoryFrame(source_story_id=ref, updated_at_source=START + timedelta(minutes=time), deleted=True)
    return _item(frame, "source")


def _item(frame: StoryFrame, source: str) -> Item:
    job_id = next(_job_ids)
    unit = Unit(job_id, STORIES, source, "request", 1, 0, 0, 1, 100, 0, 0, START, START)
    return Item(Job(job_id, unit, 0, 100, frame), frame)


class Duplicate(Exception):
    """Two stories of a source would have one slug, if only for a moment."""


class Table:
    """Stories in memory: a plan is carried out as the handler does it, row by row."""

    def __init__(self, *items: Item) -> None:
        self.rows: dict[int, StoryRow] = {}
        self._ids = itertools.count(1)
        assert not self.push(*items)

    def push(self, *items: Item) -> list[str]:
        """Apply items in rounds; returns what was said of conflicts."""
        said: list[str] = []
        for some in story_plan.rounds(items):
            # Deletions first, as the handler has it.
            for part in ([i for i in some if i.frame.deleted], [i for i in some if not i.frame.deleted]):
                plan = self.plan(part)
                self.carry_out(plan)
                said += [message for _, message in plan.conflicts]
        return said

    def plan(self, items: Sequence[Item]) -> Plan:
        by_ref: dict[Ref, StoryRow] = {(row.source, row.ref): row for row in self.rows.values()}
        for item in items:
            if item.ref not in by_ref:
                by_ref[item.ref] = self._placeholder(*item.ref)
        wanted = {(item.ref[0], item.frame.slug) for item in items if not item.frame.deleted}
        owners = {
            (row.source, row.slug): SlugOwner(row.id, row.ref, row.is_deleted)
            for row in self.rows.values()
            if (row.source, row.slug) in wanted
        }
        return story_plan.plan(items, {item.ref: by_ref[item.ref] for item in items}, owners)

    def carry_out(self, plan: Plan) -> None:
        for row_id, slug in plan.renames:
            self._put(replace(self.rows[row_id], slug=slug))
        for row_id in plan.empty:
            assert self.rows.pop(row_id).is_placeholder
        for change in plan.changes:
            assert change.after.id in self.rows
            self._put(change.after)

    def _placeholder(self, source: str, ref: str) -> StoryRow:
        row = StoryRow(
            *(next(self._ids), source, ref, placeholder_slug(ref), "", None, None, 1, None, None, "vi", None, True)
        )
        self._put(row)
        return row

    def _put(self, row: StoryRow) -> None:
        assert len(row.slug) <= story_plan.MAX_SLUG_CHARACTERS
        for other in self.rows.values():
            if other.id != row.id and (other.source, other.slug) == (row.source, row.slug):
                raise Duplicate(f"{row} and {other}")
        self.rows[row.id] = row

    def living(self) -> dict[str, str]:
        """Slugs of stories that are not deleted."""
        return {row.ref: row.slug for row in self.rows.values() if not row.is_deleted}

    def row(self, ref: str) -> StoryRow:
        (row,) = (row for row in self.rows.values() if row.ref == ref)
        return row


def test_a_new_story_gets_the_defaults_of_what_its_item_leaves_out() -> None:
    row = Table(story("a")).row("a")
    assert (row.status, row.language, row.slug, row.is_deleted) == (1, "vi", "truyen-a", False)
    row = Table(story("a", status=2, language="zh", summary=None)).row("a")
    assert (row.status, row.language, row.summary) == (2, "zh", None)


def test_what_an_update_leaves_out_stays_and_an_explicit_null_clears() -> None:
    table = Table(story("a", status=2, language="zh", summary="x", author_name="y"))
    table.push(story("a", time=1, author_name=None, title="New"))
    row = table.row("a")
    assert (row.status, row.language, row.summary, row.author_name, row.title) == (2, "zh", "x", None, "New")


def test_the_newest_of_several_items_for_one_story_wins_in_any_order() -> None:
    items = [story("a", title="one", time=1), story("a", title="three", time=3), story("a", title="two", time=2)]
    for some in itertools.permutations(items):
        assert Table(*some).row("a").title == "three"
        table = Table()
        for item in some:
            table.push(item)
        assert table.row("a").title == "three"


def test_of_two_items_with_one_time_the_later_one_wins() -> None:
    first, second = story("a", title="first"), story("a", title="second")
    assert Table(second, first).row("a").title == "second"
    table = Table(first)
    table.push(second)
    assert table.row("a").title == "second"


def test_an_older_item_is_stale_even_by_a_microsecond_and_even_if_it_deletes() -> None:
    table = Table(story("a", time=1))
    old, gone = story("a", time=1 - 1e-6 / 60), deletion("a", time=0)
    assert table.plan([old]).stale == [old]
    assert table.plan([gone]).stale == [gone]


def test_a_round_has_each_story_once_and_keeps_the_order_of_each() -> None:
    items = [story("a", time=3), story("b", time=9), story("a", time=1), story("a", time=2), story("a", source="other")]
    rounds = story_plan.rounds(items)
    assert [[item.ref for item in some] for some in rounds] == [
        [("other", "a"), ("source", "a"), ("source", "b")],
        [("source", "a")],
        [("source", "a")],
    ]
    times = [item.at for some in rounds for item in some if item.ref == ("source", "a")]
    assert times == sorted(times)
    assert story_plan.rounds([]) == []


def test_stories_swap_slugs_and_pass_them_on_in_rings() -> None:
    table = Table(*(story(str(n), f"s{n}") for n in range(5)))
    assert not table.push(*(story(str(n), f"s{(n + 1) % 5}", time=1) for n in range(5)))
    assert table.living() == {str(n): f"s{(n + 1) % 5}" for n in range(5)}


def test_a_slug_that_another_story_keeps_is_a_conflict_that_names_it() -> None:
    table = Table(story("a", "x"))
    before = dict(table.rows)
    assert table.push(story("b", "x", time=1)) == ["The slug x belongs to story a of this source."]
    assert table.rows == before  # its placeholder is gone again


def test_of_two_new_stories_with_one_slug_the_older_gets_it() -> None:
    table = Table()
    assert table.push(story("b", "x", time=2), story("a", "x", time=1), story("c")) == [
        "The slug x belongs to another story of the same batch of this source."
    ]
    assert table.living() == {"a": "x", "c": "truyen-c"}


def test_who_cannot_have_a_slug_because_its_taker_was_quicker_is_told_so() -> None:
    """The owner leaves it, but not to whoever comes second."""
    table = Table(story("a", "x"))
    said = table.push(story("a", "y", time=1), story("b", "x", time=2), story("c", "x", time=3))
    assert said == ["The slug x belongs to another story of the same batch of this source."]
    assert table.living() == {"a": "y", "b": "x"}


def test_a_story_whose_change_is_refused_stays_as_it_is() -> None:
    table = Table(story("a", "x"), story("b", "y"))
    before = dict(table.rows)
    assert len(table.push(story("b", "x", title="New", time=1))) == 1
    assert table.rows == before


def test_the_same_slug_in_two_sources_is_no_conflict() -> None:
    assert len(Table(story("a", "x"), story("a", "x", source="other")).rows) == 2


def test_a_deleted_story_gives_its_slug_up_and_can_come_back_under_another() -> None:
    table = Table(story("a", "x"))
    table.push(deletion("a", time=1))
    assert table.living() == {}
    assert not table.push(story("b", "x", time=2))
    assert NOT_A_SLUG in table.row("a").slug
    assert table.push(story("a", "x", time=3)) == ["The slug x belongs to story b of this source."]
    assert not table.push(story("a", "z", time=3))
    assert table.living() == {"a": "z", "b": "x"}


def test_a_story_deleted_in_the_same_set_gives_its_slug_up() -> None:
    table = Table(story("a", "x"))
    assert not table.push(story("b", "x", time=2), deletion("a", time=1))
    assert table.living() == {"b": "x"}


def test_a_deleted_story_that_comes_back_in_the_round_keeps_its_slug() -> None:
    table = Table(story("a", "x"))
    table.push(deletion("a", time=1))
    assert not table.push(story("a", "x", time=2))
    assert table.living() == {"a": "x"}


def test_an_older_update_of_a_story_that_was_deleted_before_it_was_seen_is_stale() -> None:
    table = Table(deletion("a", time=2))
    old = story("a", time=1)
    assert table.plan([old]).stale == [old]
    assert not table.push(story("a", time=3))
    assert table.row("a").status == 1
    assert table.living() == {"a": "truyen-a"}


def test_slugs_that_are_set_aside_fit_into_their_column() -> None:
    table = Table(story("a", "s" * 191))
    table.push(deletion("a", time=1))
    assert not table.push(story("b", "s" * 191, time=2))


REFS, SLUGS = "abcd", "wxyz"


@st.composite
def any_item(draw: st.DrawFn) -> Item:
    ref, time = draw(st.sampled_from(REFS)), draw(st.integers(0, 8))
    if draw(st.integers(0, 4)) == 0:
        return deletion(ref, time=time)
    return story(ref, draw(st.sampled_from(SLUGS)), time=time)


SETS = st.lists(st.lists(any_item(), min_size=1, max_size=6), min_size=1, max_size=3)


@settings(deadline=None, max_examples=100)
@given(SETS)
def test_no_step_of_any_plan_gives_two_stories_one_slug(sets: list[list[Item]]) -> None:
    table = Table()
    for items in sets:
        for some in story_plan.rounds(items):
            table.carry_out(table.plan(some))


@settings(deadline=None, max_examples=100)
@given(SETS)
def test_each_story_is_as_the_newest_of_its_items_that_met_no_conflict(sets: list[list[Item]]) -> None:
    table = Table()
    newest: dict[Ref, Item] = {}
    for items in sets:
        for some in story_plan.rounds(items):
            plan = table.plan(some)
            table.carry_out(plan)
            refused = [item for item, _ in plan.conflicts]
            assert len(plan.stale) + len(plan.changes) + len(refused) == len(some)
            newest |= {
                item.ref: item
                for item in some
                if item not in refused and (item.ref not in newest or item.at >= newest[item.ref].at)
            }
    assert {ref for _, ref in newest} == {row.ref for row in table.rows.values()}
    for item in newest.values():
        row = table.row(item.frame.source_story_id)
        assert (row.at, row.is_deleted) == (item.at, item.frame.deleted)
        assert row.is_deleted or row.slug == item.frame.slug
