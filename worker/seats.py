"""Who may sit where: unique numbers and slugs that several rows want at the same time.

Each claim stands for one row and names the seats that it wants. A seat is granted if it is free, if its holder leaves
it in the same round (so two rows may swap), or if its holder may be set aside. Whoever is refused stays where it is,
and that can refuse others, who wanted its place: so it is settled in turns, until nobody else has to be refused.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Seat = Hashable


@dataclass(frozen=True, slots=True)
class Claim:
    row_id: int
    """0 for a row that is not there yet."""
    wants: tuple[Seat, ...]


@dataclass(slots=True)
class Settled:
    refused: dict[int, Seat] = field(default_factory=dict)
    """Claims that get nothing, by their place, with a seat that they could not have."""
    displaced: set[int] = field(default_factory=set)
    """Rows that are to be set aside."""
    moving: set[int] = field(default_factory=set)
    """Rows that have to leave a seat before another can take it."""


def settle(claims: Sequence[Claim], holders: Mapping[Seat, int], *, may_be_set_aside: Collection[int]) -> Settled:
    """Decide about all claims, of which earlier ones come first. `holders` has the row of each seat that is taken."""
    settled = Settled()
    while True:
        active = {claim.row_id: claim for place, claim in enumerate(claims) if place not in settled.refused}
        refused = _one_turn(claims, holders, active, settled, may_be_set_aside)
        if not refused:
            return settled
        settled.refused |= refused


def _one_turn(
    claims: Sequence[Claim],
    holders: Mapping[Seat, int],
    active: Mapping[int, Claim],
    settled: Settled,
    may_be_set_aside: Collection[int],
) -> dict[int, Seat]:
    granted: set[Seat] = set()
    refused: dict[int, Seat] = {}
    settled.displaced.clear()
    settled.moving.clear()
    for place, claim in enumerate(claims):
        if place in settled.refused:
            continue
        for seat in claim.wants:
            holder = holders.get(seat)
            if seat in granted:
                refused[place] = seat
            elif holder is None or holder == claim.row_id:
                continue
            elif holder in active:
                if seat in active[holder].wants:
                    refused[place] = seat
                else:
                    settled.moving.add(holder)
            elif holder in may_be_set_aside:
                settled.displaced.add(holder)
            else:
                refused[place] = seat
        if place not in refused:
            granted.update(claim.wants)
    return refused
