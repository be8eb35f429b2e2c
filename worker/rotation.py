"""Whose turn it is: sources share a worker's claims, so that one with much to do does not keep the others waiting."""

from collections.abc import Sequence


class Rotation:
    """Remembers when each source was last served; the one that has waited longest comes first."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._count = 0

    def order(self, sources: Sequence[str]) -> list[str]:
        return sorted(sources, key=lambda source: (self._served.get(source, -1), source))

    def serve(self, sources: Sequence[str], *, waiting: Sequence[str]) -> None:
        """Note who was served; forgets sources that have nothing waiting, which so come first next time."""
        self._count += 1
        present = {*waiting, *sources}
        self._served = {source: count for source, count in self._served.items() if source in present}
        self._served |= dict.fromkeys(sources, self._count)
