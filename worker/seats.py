"""Who may sit where: unique numbers and slugs that several rows want at the same time.

Each claim stands for one row and names the seats that it wants. A seat is granted if it is free, if its holder leaves
it in the same round (so two rows may swap), or if its holder may be set aside. Who takes another's seat needs the other
to leave, who may need a third: so a claim is granted together with all those that it needs, or it is refused.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Seat = Hashable
GivesWay = Callable[[int, int], bool]
"""Whether a row gives its seats up for the claim at a place."""


def _never(place: int, row_id: int) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Claim:
    row_id: int
    """0 for a row that is not there yet."""
    wants: tuple[Seat, ...]


@dataclass(slots=True)
class Settled:
    refused: dict[int, Seat] = field(default_factory=dict)
    """Claims that get nothing, by their place, with a seat that they could not have."""
    granted: set[Seat] = field(default_factory=set)
    displaced: set[int] = field(default_factory=set)
    """Rows that are to be set aside."""
    moving: set[int] = field(default_factory=set)
    """Rows that have to leave a seat before another can take it."""


def settle(
    claims: Sequence[Claim],
    holders: Mapping[Seat, int],
    *,
    may_be_set_aside: Collection[int],
    gives_way: GivesWay = _never,
) -> Settled:
    """Decide about all claims, of which earlier ones come first. `holders` has the row of each seat that is taken.

    Nobody is refused who could be granted beside those who are, be it alone or together with others.
    """
    settled = Settled()
    places = {claim.row_id: place for place, claim in enumerate(claims) if claim.row_id}
    takers: dict[Seat, int] = {}
    granted: set[int] = set()
    for place in range(len(claims)):
        if place not in granted:
            takes, lacking = _with_all_it_needs(
                place, claims, places, holders, takers, granted, may_be_set_aside, gives_way
            )
            if lacking is None:
                takers |= takes
                granted |= {place, *takes.values()}
            else:
                settled.refused[place] = lacking
    settled.granted = set(takers)
    for seat, place in takers.items():
        holder = holders.get(seat)
        if holder is not None and holder != claims[place].row_id:
            (settled.moving if places.get(holder) in granted else settled.displaced).add(holder)
    return settled


def _with_all_it_needs(
    first: int,
    claims: Sequence[Claim],
    places: Mapping[int, int],
    holders: Mapping[Seat, int],
    takers: Mapping[Seat, int],
    granted: Collection[int],
    may_be_set_aside: Collection[int],
    gives_way: GivesWay,
) -> tuple[dict[Seat, int], Seat | None]:
    """The seats that a claim takes and those that it needs to leave, each with its claim's place; or what it lacks."""
    takes: dict[Seat, int] = {}
    members = {first}
    # With the seat of the first one for whose sake it is wanted.
    wanted = [(first, seat, seat) for seat in claims[first].wants]
    while wanted:
        place, seat, sake = wanted.pop()
        if seat in takers or takes.setdefault(seat, place) != place:
            return {}, sake
        holder = holders.get(seat)
        if holder is None or holder == claims[place].row_id or holder in may_be_set_aside:
            continue
        leaver = places.get(holder)
        if leaver is None and gives_way(place, holder):
            continue
        if leaver is None or seat in claims[leaver].wants:
            return {}, sake
        if leaver not in granted and leaver not in members:
            members.add(leaver)
            wanted += [(leaver, other, sake) for other in claims[leaver].wants]
    return takes, None
