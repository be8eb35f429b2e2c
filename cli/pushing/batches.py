"""Batches within both limits, by items and by bytes, one source each. The same items always make the same batches."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cli.pushing.items import MAX_ITEMS, Item, Route, envelope

# A file may mix many sources: past this, the largest batch that is being filled goes out as it is.
MAX_OPEN_BYTES = 24 << 20
# What an item takes in memory beside its bytes.
_ITEM_BYTES = 512


@dataclass(frozen=True, slots=True)
class Batch:
    route: Route
    source: str
    items: tuple[Item, ...]

    def body(self) -> bytes:
        return envelope(self.source, (item.encoded for item in self.items))

    def halves(self) -> tuple["Batch", "Batch"]:
        middle = len(self.items) // 2
        return (
            Batch(self.route, self.source, self.items[:middle]),
            Batch(self.route, self.source, self.items[middle:]),
        )

    @property
    def place(self) -> str:
        """From where to where its items are."""
        first, last = self.items[0].place, self.items[-1].place
        return first if first == last else f"{first} to {last}"


def idempotency_key(batch: Batch, body: bytes, *, salt: str = "") -> str:
    """The same for the same content, so that a second run repeats the first instead of pushing twice."""
    named = f"{batch.route.path}\n{batch.source}\n{salt}\n".encode()
    return hashlib.sha256(named + hashlib.sha256(body).digest()).hexdigest()


@dataclass(slots=True)
class _Open:
    """A batch that is being filled."""

    empty_bytes: int
    items: list[Item] = field(default_factory=list)
    item_bytes: int = 0

    @property
    def memory_bytes(self) -> int:
        return self.item_bytes + _ITEM_BYTES * len(self.items)

    def size_with(self, item: Item) -> int:
        """Bytes of the body if the item joined; a comma stands before each but the first."""
        return self.empty_bytes + self.item_bytes + len(item.encoded) + len(self.items)


def batches(items: Iterable[Item], *, max_open_bytes: int = MAX_OPEN_BYTES) -> Iterator[Batch]:
    """Items of one route as batches, in the order in which they fill up."""
    open_ones: dict[tuple[Route, str], _Open] = {}
    open_bytes = 0
    for item in items:
        key = (item.route, item.source)
        filling = open_ones.get(key)
        if filling and (len(filling.items) == MAX_ITEMS or filling.size_with(item) > item.route.max_body_bytes):
            open_bytes -= filling.memory_bytes
            yield _close(open_ones, key)
            filling = None
        if filling is None:
            filling = open_ones[key] = _Open(len(envelope(item.source, ())))
        filling.items.append(item)
        filling.item_bytes += len(item.encoded)
        open_bytes += len(item.encoded) + _ITEM_BYTES
        if open_bytes > max_open_bytes and len(open_ones) > 1:
            largest = max(open_ones, key=lambda key: open_ones[key].memory_bytes)
            open_bytes -= open_ones[largest].memory_bytes
            yield _close(open_ones, largest)
    for key in list(open_ones):
        yield _close(open_ones, key)


def _close(open_ones: dict[tuple[Route, str], _Open], key: tuple[Route, str]) -> Batch:
    return Batch(*key, tuple(open_ones.pop(key).items))
