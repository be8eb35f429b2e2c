"""The model of `make chaos`, which says what must be in the tables, and the feed, whose order must not matter."""

from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from ingest import batch, envelope
from loadtests.chaos import feed, havoc, model
from loadtests.chaos.feed import Feed
from loadtests.chaos.model import CHAPTERS, STORIES, Catalogue, Chapter, Item, Story
from loadtests.chaos.pace import PUSH_SLACK, Pace
from worker import genres, html

STORY = ("a", "s1")
KINDS = {STORIES: batch.stories_kind(), CHAPTERS: batch.chapters_kind(content_encoding="gzip")}


def story(minute: int, **fields: Any) -> Item:
    made = {"source_story_id": "s1", "slug": "t", "title": "T", "updated_at_source": f"2026-01-01T00:{minute:02}:00Z"}
    return Item("a", STORIES, made | fields)


def chapter(minute: int, ref: str | None = "c1", number: float = 1, **fields: Any) -> Item:
    made = {
        "source_story_id": "s1",
        "chapter_no": number,
        "slug": f"chuong-{number}",
        "title": "T",
        "content_raw": f"Bản {minute}",
        "updated_at_source": f"2026-01-01T00:{minute:02}:00Z",
    }
    return Item("a", CHAPTERS, made | ({"source_chapter_id": ref} if ref else {}) | fields)


def deletion(kind: str, minute: int, **identity: Any) -> Item:
    at = f"2026-01-01T00:{minute:02}:00Z"
    return Item("a", kind, {"source_story_id": "s1", "updated_at_source": at, "deleted": True} | identity)


def the_story(*items: Item) -> Story:
    return model.replay(items).stories[STORY]


def the_chapters(*items: Item) -> list[Chapter]:
    return model.replay(items).chapters[STORY]


# -- stories --------------------------------------------------------------------------------------------


def test_the_newest_update_of_a_story_stands_however_they_come() -> None:
    old, new = story(1, title="Old"), story(2, title="New")
    assert the_story(old, new) == the_story(new, old)
    assert the_story(new, old).title == "New"


def test_what_an_update_leaves_out_stays_and_null_empties_it() -> None:
    first = story(1, summary="S", author_name="A", status=2)
    assert the_story(first, story(2)).summary == "S"
    emptied = the_story(first, story(2, author_name=None, status=None))
    assert (emptied.author_name, emptied.status) == (None, 2)


def test_a_new_story_is_ongoing_and_vietnamese() -> None:
    made = the_story(story(1))
    assert (made.status, made.language) == (model.ONGOING, "vi")


def test_aliases_and_genres_are_replaced_as_a_set() -> None:
    made = the_story(story(1, aliases=["A", "B"], genres=["Tiên Hiệp"]), story(2, aliases=["C"], genres=["Đô Thị"]))
    assert (set(made.aliases), set(made.genres)) == ({"C"}, {"do-thi"})


def test_a_deleted_story_comes_back_with_a_newer_update() -> None:
    gone = deletion(STORIES, 2)
    assert the_story(story(1), gone).is_deleted
    assert not the_story(story(1), gone, story(3)).is_deleted
    assert the_story(gone, story(1)).is_deleted  # older than the deletion, though it comes later


def test_a_slug_that_another_has_is_refused_until_that_one_is_deleted() -> None:
    rival = {"source_story_id": "s2"}
    assert model.replay([story(1), story(2, **rival)]).refused == {1}
    made = model.replay([story(1), deletion(STORIES, 2), story(3, **rival)])
    assert made.refused == set()
    assert set(made.stories) == {STORY, ("a", "s2")}


def test_two_sources_may_have_the_same_slug() -> None:
    assert model.replay([story(1), Item("b", STORIES, story(2).fields)]).refused == set()


def test_an_update_that_is_refused_changes_nothing() -> None:
    made = model.replay(
        [story(1), story(2, source_story_id="s2", slug="u"), story(3, source_story_id="s2", title="No")]
    )
    assert made.refused == {2}
    assert made.stories["a", "s2"].title == "T"
    assert made.newest == {0, 1}


# -- chapters -------------------------------------------------------------------------------------------


def test_a_chapter_without_an_id_is_the_one_that_gets_an_id_later() -> None:
    (made,) = the_chapters(chapter(1, None), chapter(2, "c1"))
    assert (made.ref, made.text) == ("c1", "Bản 2")


def test_chapters_with_ids_swap_their_numbers() -> None:
    made = the_chapters(chapter(1, "c1", 1), chapter(2, "c2", 2), chapter(3, "c1", 2), chapter(4, "c2", 1))
    assert {found.ref: found.number for found in made} == {"c1": Decimal(2), "c2": Decimal(1)}


@pytest.mark.parametrize("identity", [{"source_chapter_id": "c1"}, {"chapter_no": 1}])
def test_a_chapter_is_deleted_by_id_or_number_and_comes_back(identity: dict[str, Any]) -> None:
    gone = deletion(CHAPTERS, 2, **identity)
    (deleted,) = the_chapters(chapter(1), gone)
    (back,) = the_chapters(gone, chapter(3), chapter(1))
    assert (deleted.is_visible, back.is_visible, back.text) == (False, True, "Bản 3")


def test_only_what_nothing_has_overtaken_can_never_be_stale() -> None:
    copies = [chapter(2), chapter(1), chapter(2)]
    assert model.replay(copies).newest == {0, 2}


def test_an_unpublished_chapter_is_not_visible() -> None:
    made = model.replay([chapter(1, is_published=False), chapter(2, "c2", 2)])
    assert [found.ref for found in made.visible(STORY)] == ["c2"]


def test_times_are_compared_in_utc_to_the_microsecond() -> None:
    assert model.moment("2026-01-01T07:00:00.000001+07:00") == datetime(2026, 1, 1, microsecond=1)
    assert datetime.fromisoformat("2026-01-01T00:00:00Z").tzinfo == UTC


# -- the feed -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> Feed:
    return feed.make(seed=1, items=6000)


@pytest.fixture(scope="module")
def expected(made: Feed) -> Catalogue:
    return model.replay(feed.accepted(made.batches))


def test_the_same_seed_makes_the_same_feed_and_another_seed_another(made: Feed) -> None:
    assert feed.make(seed=1, items=6000) == made
    assert feed.make(seed=2, items=6000) != made


def test_the_feed_has_something_of_everything(made: Feed, expected: Catalogue) -> None:
    items = feed.accepted(made.batches)
    assert 6000 <= made.items < 7000
    assert {code for some in made.batches for code in some.rejected.values()} == {"invalid_slug", "duplicate_item"}
    assert len(items) > 1.03 * len({str(item) for item in items})
    assert {item.kind for item in items if item.fields.get("deleted")} == {STORIES, CHAPTERS}
    assert len(expected.refused) > 5
    assert any(found.is_deleted for found in expected.stories.values())
    numbers: dict[object, set[object]] = defaultdict(set)
    for item in items:
        if ref := item.fields.get("source_chapter_id"):
            numbers[item.story, ref].add(item.fields.get("chapter_no", 0))
    assert any(len(some - {0}) == 2 for some in numbers.values())
    assert all(chapters[0].at for chapters in expected.chapters.values())
    assert expected.chapters.keys() <= expected.stories.keys()


def test_the_door_takes_and_refuses_what_the_feed_says(made: Feed) -> None:
    for some in made.batches[:60]:
        checked = batch.check(envelope.read(some.body()), KINDS[some.kind], now=datetime.now(UTC))
        assert {error.index: error.code for error in checked.errors} == some.rejected
        assert checked.accepted == len(some.accepted) > 0


def test_no_two_different_items_of_a_story_have_the_same_time(made: Feed) -> None:
    found: dict[object, str] = {}
    for item in feed.accepted(made.batches):
        key = item.story, item.at
        assert found.setdefault(key, str(item.fields)) == str(item.fields)


def test_what_has_an_optional_field_once_has_it_always(made: Feed) -> None:
    found: dict[object, set[str]] = {}
    for item in feed.accepted(made.batches):
        ref = item.fields.get("source_chapter_id")
        is_named = item.kind == STORIES or ref is not None
        if is_named and not item.fields.get("deleted"):
            given = item.fields.keys()
            assert found.setdefault((item.story, ref), set(given)) == given


def test_slugs_and_numbers_belong_to_one_in_the_end(expected: Catalogue) -> None:
    for chapters in expected.chapters.values():
        living = [found for found in chapters if not found.is_deleted]
        assert len({found.number for found in living}) == len({found.slug for found in living}) == len(living)


def test_nothing_comes_before_what_others_conflict_with(made: Feed, expected: Catalogue) -> None:
    first = feed.accepted(made.first)
    anchors = {(item.source, item.fields["slug"]) for item in first}
    refused = [feed.accepted(made.batches)[place] for place in expected.refused]
    assert {(item.source, item.fields["slug"]) for item in refused} <= anchors
    assert not any(expected.stories[item.story].is_deleted for item in first)


def test_texts_are_counted_and_shown_by_the_model_as_by_the_worker(made: Feed) -> None:
    texts = {item.fields["content_raw"] for item in feed.accepted(made.batches) if "content_raw" in item.fields}
    for text in sorted(texts)[:300]:
        prepared = html.prepare(text.encode())
        assert (prepared.html.decode(), prepared.words) == (model.html(text), model.words(text))


def test_genres_have_the_slugs_that_the_worker_gives_them(made: Feed) -> None:
    names = {name for item in feed.accepted(made.batches) for name in item.fields.get("genres") or ()}
    assert len(names) > 20
    assert {name: model.genre_slug(name) for name in names} == {name: genres.slug(name) for name in names}


# -- pace and strikes -----------------------------------------------------------------------------------


def test_pushing_working_and_striking_go_side_by_side() -> None:
    pace = Pace(batches=100, strikes=50)
    pushed = struck = 0
    while pushed < 100 or struck < 50:
        before = pushed, struck
        while pushed < 100 and pushed / 100 <= struck / 50 + PUSH_SLACK:
            assert pace.wait_to_push(pushed)
            pushed += 1
        pace.done(pushed / 100)
        while pace.may_strike():
            pace.struck()
            struck += 1
        assert (pushed, struck) != before, "both wait"
        assert abs(pushed / 100 - struck / 50) <= 0.2
    assert pace.has_struck_all()


def test_no_strike_comes_long_before_the_work_that_it_is_to_disturb() -> None:
    pace = Pace(batches=100, strikes=10)
    pace.struck()
    assert not pace.may_strike()
    pace.done(0.1)
    assert pace.may_strike()


def test_whoever_waits_to_push_is_let_go_at_the_end() -> None:
    pace = Pace(batches=10, strikes=10)
    pace.end()
    assert not pace.wait_to_push(9)


def test_the_same_seed_strikes_in_the_same_way() -> None:
    strikes = [[next(some) for _ in range(50)] for some in (havoc.strikes(3), havoc.strikes(3), havoc.strikes(4))]
    assert strikes[0] == strikes[1] != strikes[2]
    assert {strike.is_stop for strike in strikes[0]} == {True, False}
