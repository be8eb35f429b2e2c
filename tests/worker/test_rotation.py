"""Whose turn it is."""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.rotation import Rotation

NAMES = "abcde"


def turns(rotation: Rotation, rounds: Iterable[Iterable[str]], *, served_at_once: int = 1) -> list[list[str]]:
    """Who is served in each round, of those who wait in it."""
    found = []
    for waiting in map(sorted, rounds):
        served = rotation.order(waiting)[:served_at_once]
        rotation.serve(served, waiting=waiting)
        found.append(served)
    return found


def test_sources_take_turns() -> None:
    assert turns(Rotation(), ["abc"] * 6) == [["a"], ["b"], ["c"], ["a"], ["b"], ["c"]]


def test_a_claim_that_serves_several_puts_all_of_them_behind() -> None:
    assert turns(Rotation(), ["abc"] * 3, served_at_once=2) == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_who_comes_now_and_then_is_served_before_who_always_waits() -> None:
    assert turns(Rotation(), ["a", "a", "ab", "a", "a", "ab"]) == [["a"], ["a"], ["b"], ["a"], ["a"], ["b"]]


def test_two_who_come_and_go_by_turns_do_not_keep_a_third_waiting() -> None:
    assert ["z"] in turns(Rotation(), ["xz", "yz", "xz"])


def test_a_source_that_could_not_be_served_keeps_its_place() -> None:
    """Its units may all be locked by another claim."""
    rotation = Rotation()
    assert rotation.order(["a", "b"]) == ["a", "b"]
    rotation.serve(["b"], waiting=["a", "b"])
    assert rotation.order(["a", "b"]) == ["a", "b"]


def test_nobody_who_waited_is_forgotten_when_nothing_is_served() -> None:
    rotation = Rotation()
    turns(rotation, ["ab"])
    rotation.serve([], waiting=["a", "b"])
    assert rotation.order(["a", "b"]) == ["b", "a"]


@settings(deadline=None, max_examples=100)
@given(others=st.lists(st.sets(st.sampled_from(NAMES)), min_size=len(NAMES) + 1, max_size=30))
def test_who_waits_is_served_after_each_other_source_once_at_most(others: list[set[str]]) -> None:
    rotation, waited = Rotation(), 0
    for served in turns(rotation, [some | {"z"} for some in others]):
        waited = 0 if served == ["z"] else waited + 1
        assert waited <= len(NAMES)


@settings(deadline=None, max_examples=100)
@given(rounds=st.lists(st.sets(st.sampled_from(NAMES), min_size=1), max_size=30))
def test_every_waiting_source_has_one_place_in_the_order(rounds: list[set[str]]) -> None:
    rotation = Rotation()
    turns(rotation, rounds)
    assert sorted(rotation.order(list(NAMES))) == list(NAMES)


def test_sources_that_are_gone_are_forgotten() -> None:
    rotation = Rotation()
    turns(rotation, [[f"source-{number}"] for number in range(1000)])
    assert len(rotation._served) < 3


def test_who_comes_first_in_the_alphabet_has_no_greater_share() -> None:
    served = [source for some in turns(Rotation(), ["abc"] * 30, served_at_once=2) for source in some]
    assert {served.count(source) for source in "abc"} == {20}
