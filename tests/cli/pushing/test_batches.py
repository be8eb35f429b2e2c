import json
from collections.abc import Iterable
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from cli.pushing import batches
from cli.pushing.batches import Batch
from cli.pushing.items import CHAPTERS, STORIES, Item, Route

SMALL = Route("stories", "/path", 2000)


def item(number: int, *, source: str = "a", size: int = 20, route: Route = STORIES) -> Item:
    return Item(route, source, f"file:{number}", json.dumps({"n": number, "x": "x" * size}).encode())


def numbers(made: Iterable[Batch]) -> list[int]:
    return [int(item.place.partition(":")[2]) for batch in made for item in batch.items]


def test_a_batch_has_at_most_300_items() -> None:
    made = list(batches.batches(item(number) for number in range(700)))
    assert [len(batch.items) for batch in made] == [300, 300, 100]
    assert numbers(made) == list(range(700))


def test_a_body_reaches_the_limit_of_bytes_to_the_last_and_never_passes_it() -> None:
    empty = len(Batch(CHAPTERS, "a", ()).body())
    size = CHAPTERS.max_body_bytes - empty
    first, second = b"1" * (size // 2), b"2" * (size - size // 2 - 1)
    fitting = [Item(CHAPTERS, "a", "f:1", first), Item(CHAPTERS, "a", "f:2", second)]
    (only,) = batches.batches(fitting)
    assert len(only.body()) == CHAPTERS.max_body_bytes
    fitting[1] = Item(CHAPTERS, "a", "f:2", second + b"2")
    assert len(list(batches.batches(fitting))) == 2


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1800)), max_size=60),
    st.integers(1000, 40_000),
)
def test_every_item_is_in_one_batch_of_its_source_within_the_limits(
    sizes: list[tuple[str, int]], max_open_bytes: int
) -> None:
    items = [item(number, source=source, size=size, route=SMALL) for number, (source, size) in enumerate(sizes)]
    made = list(batches.batches(items, max_open_bytes=max_open_bytes))
    assert sorted(numbers(made)) == list(range(len(items)))
    for batch in made:
        body = json.loads(batch.body())
        assert len(batch.body()) <= SMALL.max_body_bytes
        assert body["source"] == batch.source
        assert body["items"] == [json.loads(one.encoded) for one in batch.items]
        assert {one.source for one in batch.items} == {batch.source}
    for _, group in groupby(sorted(made, key=lambda batch: batch.source), key=lambda batch: batch.source):
        in_order = numbers(group)
        assert in_order == sorted(in_order)


def test_sources_that_alternate_fill_a_batch_each() -> None:
    made = list(batches.batches(item(number, source="ab"[number % 2]) for number in range(600)))
    assert [(batch.source, len(batch.items)) for batch in made] == [("a", 300), ("b", 300)]


def test_many_sources_do_not_pile_up_in_memory() -> None:
    open_at_once = 0
    taken = 0

    def counted() -> Iterable[Item]:
        nonlocal taken
        for number in range(5000):
            taken += 1
            yield item(number, source=f"s{number}", size=1000)

    given_out = 0
    for batch in batches.batches(counted(), max_open_bytes=200_000):
        open_at_once = max(open_at_once, taken - given_out)
        given_out += len(batch.items)
    assert given_out == 5000
    assert open_at_once < 200


def test_the_same_content_has_the_same_key_and_any_other_another() -> None:
    one = Batch(STORIES, "a", (item(1),))
    key = batches.idempotency_key(one, one.body())
    assert key == batches.idempotency_key(one, one.body())
    others = [
        Batch(STORIES, "a", (item(2),)),
        Batch(STORIES, "b", (item(1),)),
        Batch(CHAPTERS, "a", (item(1),)),
    ]
    keys = {key, batches.idempotency_key(one, one.body(), salt="again")}
    keys |= {batches.idempotency_key(other, other.body()) for other in others}
    assert len(keys) == 5
    assert len(key) <= 120


def test_halves_are_the_whole() -> None:
    whole = Batch(STORIES, "a", tuple(item(number) for number in range(5)))
    first, second = whole.halves()
    assert first.items + second.items == whole.items
    assert (whole.place, first.place) == ("file:0 to file:4", "file:0 to file:1")
