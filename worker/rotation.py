"""Whose turn it is: sources share a worker's claims, so that one with much to do does not keep the others waiting."""

from collections.abc import Sequence


class Rotation:
    """Remembers when each source was last served; the one that has waited longest comes first.

    Who has nothing waiting is forgotten, and so comes first next time; but not before all who wait now have had their
    turn, or two who come and go by turns could keep a third waiting for ever.
    """

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._count = 0

    def order(self, sources: Sequence[str]) -> list[str]:
        return sorted(sources, key=lambda source: (self._served.get(source, -1), source))

    def serve(self, sources: Sequence[str], *, waiting: Sequence[str]) -> None:
        """Note who was served, of all that have something waiting."""
        for source in dict.fromkeys(sources):  # also among themselves: the first of them is the first again
            self._count += 1
            self._served[source] = self._count
        present = {*waiting, *sources}
        oldest = min(self._served.get(source, -1) for source in present) if present else self._count
        self._served = {source: count for source, count in self._served.items() if source in present or count > oldest}
