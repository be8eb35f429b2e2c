"""What has to be written so that chapters are as their source has them now."""

import itertools
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.chapter_table import NOW, Table, chapter, deletion, stored
from worker.chapter_plan import ASIDE, Item


def table(*items: Item) -> Table:
    """What has these chapters already."""
    made = Table()
    assert not made.push(*items)
    return made


def test_new_chapters_are_inserted() -> None:
    made = table(chapter("a", 1), chapter("b", "2.5"), chapter(None, 3))
    assert made.living() == [("a", "1", "c-1"), ("b", "2.5", "c-2.5"), (None, "3", "c-3")]


def test_the_newest_of_several_items_for_one_chapter_wins_in_any_order() -> None:
    items = [chapter("a", 1, "one", time=1), chapter("a", 2, "two", time=3), chapter("a", 3, "three", time=2)]
    for some in itertools.permutations(items):
        assert table(*some).living() == [("a", "2", "two")]
        made = Table()
        for item in some:
            made.push(item)
        assert made.living() == [("a", "2", "two")]


def test_of_two_items_with_one_time_the_later_one_wins_in_one_set_and_in_two() -> None:
    first, second = chapter("a", 1, "first"), chapter("a", 1, "second")
    assert table(second, first).living() == [("a", "1", "second")]
    made = table(first)
    made.push(second)
    assert made.living() == [("a", "1", "second")]


def test_an_older_item_is_stale_even_by_a_microsecond_and_changes_nothing() -> None:
    made = table(chapter("a", 1, time=2))
    before = dict(made.rows)
    old = chapter("a", 9, time=2 - 1e-6 / 60)
    assert made.plan([old]).stale == [old]
    made.push(old, deletion("a", time=1))
    assert made.rows == before


def test_an_unchanged_chapter_is_not_written_but_its_time_is_noted() -> None:
    made = table(chapter("a", 1, time=1))
    (row,) = made.rows.values()
    again = chapter("a", 1, time=5)
    plan = made.plan([again])
    assert plan.unchanged == [again]
    assert plan.refreshed == [(row.id, stored(5))]
    assert not plan.changes
    same = made.plan([chapter("a", 1, time=1)])
    assert len(same.unchanged) == 1
    assert not same.refreshed


def test_a_changed_title_is_written_without_a_new_body_and_a_changed_body_with_one() -> None:
    made = table(chapter("a", 1, title="one"))
    (change,) = made.plan([chapter("a", 1, title="another", time=1)]).changes
    assert not change.has_new_body
    assert change.after.word_count == len("one")
    (change,) = made.plan([chapter("a", 1, body="new", title="another", time=1)]).changes
    assert change.has_new_body
    assert change.after.word_count == len("another")


def test_what_an_item_leaves_out_stays_as_it_is() -> None:
    published_at = datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    made = table(chapter("a", 1, is_published=False, published_at=published_at))
    made.push(chapter("a", 2, time=1))
    (row,) = made.rows.values()
    assert not row.is_published
    assert row.published_at == datetime(2020, 1, 2, 3, 4, 5)
    made = table(chapter("a", 1))
    (row,) = made.rows.values()
    assert row.is_published
    assert row.published_at == NOW


def test_a_chapter_that_came_without_an_id_is_adopted_by_the_first_item_that_brings_one() -> None:
    made = table(chapter(None, 1))
    assert not made.push(chapter("a", 1, time=1))
    assert made.living() == [("a", "1", "c-1")]
    assert len(made.push(chapter("b", 1, time=2))) == 1  # it is another's now
    made.push(chapter(None, 1, "new", time=3))  # who names no id means whatever has the number
    assert made.living() == [("a", "1", "new")]


def test_a_chapter_adopted_and_moved_in_one_set_is_one_row() -> None:
    made = table(chapter(None, 1))
    assert not made.push(chapter("a", 1, time=1), chapter("a", 7, time=2))
    assert made.living() == [("a", "7", "c-7")]


def test_two_rows_cannot_be_adopted_under_one_id() -> None:
    made = table(chapter(None, 1), chapter(None, 2))
    assert len(made.push(chapter("a", 1, time=1), chapter("a", 2, time=2))) == 1
    assert made.living() == [("a", "1", "c-1"), (None, "2", "c-2")]


@pytest.mark.parametrize("with_slugs", [False, True])
def test_chapters_swap_numbers_and_move_around_in_rings(with_slugs: bool) -> None:
    made = table(*(chapter(f"r{n}", n, f"s{n}") for n in range(1, 6)))
    ring = [chapter(f"r{n}", n % 5 + 1, f"s{n % 5 + 1 if with_slugs else n}", time=1) for n in range(1, 6)]
    assert not made.push(*ring)
    assert [ref for ref, _, _ in made.living()] == ["r5", "r1", "r2", "r3", "r4"]


def test_inserting_a_chapter_in_the_middle_shifts_the_rest() -> None:
    made = table(*(chapter(f"r{n}", n) for n in range(1, 300)))
    new = [chapter("new", 100, time=1), *(chapter(f"r{n}", n + 1, time=1) for n in range(100, 300))]
    assert not made.push(*new)
    refs = [ref for ref, _, _ in made.living()]
    assert refs == [*(f"r{n}" for n in range(1, 100)), "new", *(f"r{n}" for n in range(100, 300))]


def test_who_wants_a_place_that_another_keeps_is_a_conflict_that_names_it() -> None:
    made = table(chapter("a", 1), chapter(None, 2))
    before = dict(made.rows)
    one, other = chapter("b", 1, "new"), chapter("c", 9, "c-2")
    assert made.push(one, other) == [
        (one, "The number 1 belongs to chapter a of this story."),
        (other, "The slug c-2 belongs to chapter 2 of this story."),
    ]
    assert made.rows == before


def test_a_conflict_costs_its_neighbours_nothing() -> None:
    made = table(chapter("a", 1))
    bad = chapter("b", 1)
    assert [item for item, _ in made.push(chapter("c", 2), bad, chapter("d", 3))] == [bad]
    assert [ref for ref, _, _ in made.living()] == ["a", "c", "d"]


def test_stories_do_not_stand_in_each_others_way() -> None:
    made = table(chapter("a", 1, story_id=1), chapter("a", 1, story_id=2))
    assert not made.push(
        *(chapter("a", 2, time=1, story_id=story_id) for story_id in (1, 2)),
        *(chapter("b", 1, time=1, story_id=story_id) for story_id in (1, 2)),
    )
    assert len(made.rows) == 4


def test_a_deleted_chapter_gives_way_and_comes_back_elsewhere() -> None:
    made = table(chapter("a", 1))
    made.push(deletion("a", time=1))
    assert made.living() == []
    assert not made.push(chapter("b", 1, time=2))
    assert made.living() == [("b", "1", "c-1")]
    assert not made.push(chapter("a", 5, time=3))
    assert made.living() == [("b", "1", "c-1"), ("a", "5", "c-5")]


def test_a_chapter_deleted_in_the_same_set_gives_way_to_its_successor() -> None:
    made = table(chapter("a", 1))
    assert not made.push(deletion("a", time=1), chapter("b", 1, time=2))
    assert made.living() == [("b", "1", "c-1")]


def test_a_deleted_chapter_that_comes_back_keeps_its_body_and_place() -> None:
    made = table(chapter("a", 1))
    made.push(deletion("a", time=1))
    (change,) = made.plan([chapter("a", 1, time=2)]).changes
    assert change.before is not None
    assert not change.has_new_body
    assert not change.after.is_deleted


def test_several_chapters_set_aside_share_no_place_however_often() -> None:
    made = Table()
    for time in range(12):
        made.push(chapter(f"a{time}", 1, time=time), chapter(f"b{time}", 2, time=time))
        assert not made.push(deletion(f"a{time}", time=time), deletion(f"b{time}", time=time))
    aside = [row.number for row in made.rows.values() if row.number < 0]
    assert len(aside) == len(set(aside)) == 22
    assert all(number < ASIDE for number in aside)


def test_slugs_that_are_set_aside_fit_into_their_column() -> None:
    made = table(chapter("a", 1, "s" * 191))
    made.push(deletion("a", time=1))
    assert not made.push(chapter("b", 1, "s" * 191, time=2))
    assert all(len(row.slug) <= 191 for row in made.rows.values())


@pytest.mark.parametrize("ref", [None, "a"])
def test_an_older_update_of_a_chapter_that_was_deleted_before_it_was_seen_is_stale(ref: str | None) -> None:
    made = table(deletion(ref, 4, time=2))
    old = chapter(ref, 4, time=1)
    assert made.plan([old]).stale == [old]
    assert not made.push(chapter(ref, 4, time=3))
    assert made.living() == [(ref, "4", "c-4")]
    assert len(made.rows) == 1


def test_an_older_update_under_another_number_does_not_bring_back_what_was_deleted_by_its_id() -> None:
    made = table(chapter(None, 5))
    made.push(deletion("a", 5, time=2))
    made.push(chapter("a", 6, time=1))
    assert made.living() == []


def test_what_was_deleted_before_it_was_seen_stands_in_nobodys_way() -> None:
    made = table(deletion("a", time=2), deletion("b", 1, time=2), deletion(None, 2, time=2))
    assert not made.push(chapter("c", 1, time=1), chapter("d", 2, time=3))
    assert made.living() == [("c", "1", "c-1"), ("d", "2", "c-2")]


def test_a_round_never_writes_a_row_twice() -> None:
    made = table(chapter("a", 1))
    items = [chapter("a", 1, title=str(time), time=time) for time in range(1, 4)]
    plan = made.plan(items)
    assert len(plan.changes) == 1
    assert plan.deferred == items[1:]


def test_numbers_are_the_same_however_many_decimals_they_have() -> None:
    made = table(chapter(None, "1.5"))
    assert not made.push(chapter(None, "1.50", "c-1.5", time=1))
    assert [row.number for row in made.rows.values()] == [Decimal("1.5")]


REFS = st.sampled_from([None, None, "a", "b", "c", "d"])
NUMBERS = st.integers(1, 4)
TIMES = st.integers(0, 6)


@st.composite
def any_item(draw: st.DrawFn) -> Item:
    ref, number, time = draw(REFS), draw(NUMBERS), draw(TIMES)
    if draw(st.integers(0, 4)) == 0:
        return deletion(ref, draw(st.none() | NUMBERS) if ref else number, time=time)
    slug = draw(st.sampled_from([f"c-{number}", f"c-{number}", f"c-{number}", "c-1", f"s-{ref or number}"]))
    return chapter(ref, number, slug, time=time, body=draw(st.sampled_from("xy")))


SETS = st.lists(st.lists(any_item(), min_size=1, max_size=6), min_size=1, max_size=3)


@settings(deadline=None, max_examples=150)
@given(SETS)
def test_no_step_of_any_plan_breaks_a_unique_key(sets: list[list[Item]]) -> None:
    made = Table()
    for items in sets:
        made.push(*items)
        made.push(*items)  # a job may run twice


@settings(deadline=None, max_examples=150)
@given(SETS)
def test_what_has_ids_and_met_no_conflict_changes_nothing_when_it_is_pushed_again(sets: list[list[Item]]) -> None:
    made = Table()
    by_time = {item.at: item for some in sets for item in some if item.frame.source_chapter_id}
    items = list(by_time.values())
    if not made.push(*items) and not made.hidden:
        before = dict(made.rows)
        assert not made.push(*items)
        assert made.rows == before


@settings(deadline=None, max_examples=200)
@given(SETS)
def test_a_set_ends_as_its_items_one_by_one_in_the_order_of_their_times_would(sets: list[list[Item]]) -> None:
    """Where these meet no conflict: a set may swap, what comes one by one cannot."""
    at_once, one_by_one = Table(), Table()
    for items in sets:
        in_order = sorted(items, key=lambda item: (item.at, item.job.id))
        conflicts = [one_by_one.push(item) for item in in_order]
        if any(conflicts):
            return
        assert not at_once.push(*items)
        assert at_once.meaning() == one_by_one.meaning()


@settings(deadline=None, max_examples=150)
@given(st.permutations(range(5)), st.permutations(range(5)), st.sets(st.integers(0, 4), min_size=1))
def test_any_renumbering_is_carried_out_in_one_round(numbers: list[int], slugs: list[int], moved: set[int]) -> None:
    """Rings among those that move, as often as chains to new places."""
    made = table(*(chapter(f"r{n}", n, f"s{n}") for n in range(5)))
    kept = {n for n in range(5) if n not in moved}
    items = [
        chapter(
            f"r{n}",
            numbers[n] if numbers[n] not in kept else 10 + n,
            f"s{slugs[n]}" if slugs[n] not in kept else f"t{n}",
            time=1,
        )
        for n in moved
    ]
    plan = made.plan(items)
    assert not plan.conflicts
    assert not plan.deferred
    made.carry_out(plan)
    found = {row.ref: (row.number, row.slug) for row in made.rows.values()}
    assert all(found[item.frame.source_chapter_id] == (item.frame.chapter_no, item.frame.slug) for item in items)


def test_an_item_that_waits_for_another_is_not_overtaken() -> None:
    """The second goes to the number that the third names, which comes without an id."""
    made = table(chapter("a", 1))
    assert not made.push(
        chapter("a", 1, title="x", time=1), chapter("a", 3, time=2), chapter(None, 3, title="y", time=3)
    )
    assert len(made.rows) == 1
