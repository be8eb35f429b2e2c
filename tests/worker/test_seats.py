"""Who may sit where."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from worker import seats
from worker.seats import Claim, Seat, Settled


def claim(row_id: int, *wants: Seat) -> Claim:
    return Claim(row_id, wants)


def settle(holders: dict[Seat, int], *claims: Claim, aside: Collection[int] = ()) -> Settled:
    return seats.settle(claims, holders, may_be_set_aside=aside)


def test_two_rows_may_swap() -> None:
    settled = settle({"a": 1, "b": 2}, claim(1, "b"), claim(2, "a"))
    assert not settled.refused
    assert settled.moving == {1, 2}


def test_a_ring_of_rows_may_move_on_by_one() -> None:
    settled = settle(
        {seat: seat + 1 for seat in range(600)}, *(claim(seat + 1, (seat + 1) % 600) for seat in range(600))
    )
    assert not settled.refused
    assert len(settled.moving) == 600


def test_a_row_that_leaves_to_a_free_seat_makes_room() -> None:
    settled = settle({"a": 1}, claim(0, "a"), claim(1, "b"))
    assert not settled.refused
    assert settled.moving == {1}


def test_a_row_that_nobody_follows_has_not_to_leave_first() -> None:
    assert not settle({"a": 1}, claim(1, "b")).moving


def test_who_stays_keeps_its_seat() -> None:
    assert settle({"a": 1}, claim(0, "a"), claim(1, "a")).refused == {0: "a"}
    assert settle({"a": 1}, claim(0, "a")).refused == {0: "a"}


def test_the_earlier_of_two_claims_gets_the_seat() -> None:
    assert settle({}, claim(0, "a"), claim(0, "a")).refused == {1: "a"}


def test_a_refusal_refuses_all_who_follow_but_nobody_else() -> None:
    settled = settle({"a": 1, "b": 2, "c": 3}, claim(0, "a"), claim(1, "b"), claim(2, "c"), claim(0, "d"))
    assert settled.refused == {0: "a", 1: "b", 2: "c"}
    assert not settled.moving


def test_a_row_that_may_be_set_aside_is() -> None:
    settled = settle({"a": 1}, claim(0, "a"), aside={1})
    assert not settled.refused
    assert settled.displaced == {1}


def test_a_row_that_may_be_set_aside_but_moves_of_itself_is_not() -> None:
    settled = settle({"a": 1}, claim(0, "a"), claim(1, "b"), aside={1})
    assert not settled.refused
    assert settled.moving == {1}
    assert not settled.displaced


def test_a_row_that_may_be_set_aside_and_cannot_have_what_it_wants_is() -> None:
    settled = settle({"a": 1, "b": 2}, claim(0, "a"), claim(1, "b"), aside={1})
    assert settled.refused == {1: "b"}
    assert settled.displaced == {1}


def test_nobody_is_set_aside_for_a_claim_that_gets_nothing() -> None:
    assert not settle({"a": 1, "b": 2}, claim(0, "a", "b"), aside={1}).displaced


def test_what_a_refused_claim_wanted_goes_to_the_next() -> None:
    """The first needs the second to leave, to the very seat that it wants itself."""
    settled = settle({"b": 1}, claim(0, "a", "b"), claim(1, "a"))
    assert settled.refused.keys() == {0}


def test_nobody_is_refused_for_a_claim_that_is_refused_later() -> None:
    settled = settle({"b": 1, "c": 2}, claim(0, "a", "b"), claim(0, "a"), claim(1, "c"))
    assert settled.refused.keys() == {0, 2}


@dataclass(frozen=True)
class Scene:
    claims: Sequence[Claim]
    holders: dict[Seat, int]
    aside: frozenset[int]

    def allows(self, granted: Collection[int]) -> bool:
        """Whether these claims, by their places, can all be granted: slow and plain."""
        wants = [seat for place in granted for seat in self.claims[place].wants]
        going = {self.claims[place].row_id for place in granted} | self.aside
        kept = {seat for seat, row_id in self.holders.items() if row_id not in going}
        return len(wants) == len(set(wants)) and kept.isdisjoint(wants)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Rows with a number and a slug each, of which some want others, and some new rows."""
    rows = draw(st.integers(0, 5))
    numbers = draw(st.permutations(range(6)))
    slugs = draw(st.permutations("uvwxyz"))
    holders: dict[Seat, int] = {}
    for row_id in range(1, rows + 1):
        holders |= {numbers[row_id - 1]: row_id, slugs[row_id - 1]: row_id}
    claimants = [*draw(st.permutations([row_id for row_id in range(1, rows + 1) if draw(st.booleans())]))]
    for _ in range(draw(st.integers(0, 3))):
        claimants.insert(draw(st.integers(0, len(claimants))), 0)
    claims = [claim(row_id, draw(st.integers(0, 5)), draw(st.sampled_from("uvwxyz"))) for row_id in claimants]
    aside = frozenset(draw(st.sets(st.integers(1, 5), max_size=2)))
    return Scene(claims, holders, aside)


def somes(places: Collection[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(places, size) for size in range(1, len(places) + 1))


@settings(deadline=None, max_examples=150)
@given(scenes())
def test_nobody_shares_a_seat_and_nobody_is_refused_who_could_be_granted(scene: Scene) -> None:
    settled = seats.settle(scene.claims, scene.holders, may_be_set_aside=scene.aside)
    granted = [place for place in range(len(scene.claims)) if place not in settled.refused]
    assert scene.allows(granted)
    assert not any(scene.allows([*granted, *some]) for some in somes(settled.refused))
    assert all(seat in scene.claims[place].wants for place, seat in settled.refused.items())
    assert settled.granted == {seat for place in granted for seat in scene.claims[place].wants}


@settings(deadline=None, max_examples=150)
@given(scenes())
def test_the_first_claim_is_refused_only_if_it_could_not_be_granted_in_any_company(scene: Scene) -> None:
    settled = seats.settle(scene.claims, scene.holders, may_be_set_aside=scene.aside)
    if 0 in settled.refused:
        others = range(1, len(scene.claims))
        assert not scene.allows([0])
        assert not any(scene.allows([0, *some]) for some in somes(others))


@settings(deadline=None, max_examples=150)
@given(scenes())
def test_only_rows_whose_seats_are_taken_have_to_leave(scene: Scene) -> None:
    settled = seats.settle(scene.claims, scene.holders, may_be_set_aside=scene.aside)
    granted = [claim for place, claim in enumerate(scene.claims) if place not in settled.refused]
    taken_from = {
        scene.holders[seat]
        for claim in granted
        for seat in claim.wants
        if scene.holders.get(seat, claim.row_id) != claim.row_id
    }
    assert settled.moving == taken_from & {claim.row_id for claim in granted}
    assert settled.displaced == taken_from - settled.moving
    assert settled.displaced <= scene.aside
