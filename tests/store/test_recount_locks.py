"""Recounts and writers of content: neither waits for the other, and what one has locked the other leaves out."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from runtime.addresses import DatabaseAddress
from store import recounts
from store.connection import Connection
from store.recounts import Dirty
from tests.store.counting import counted
from tests.store.recounting import LEASE, WINDOW, ask, claim, finish, give_back, ids, touch
from tests.store.stepped import Clock, SteppedPool, stepped_pool


@pytest.fixture
async def at(address: DatabaseAddress) -> AsyncIterator[SteppedPool]:
    """Connections that wait no longer than a second for a lock."""
    async with stepped_pool(address, Clock()) as pool:
        yield pool


@pytest.fixture
def nobody_waited() -> Callable[[], bool]:
    """Whether no lock was waited for too long, and none by two for each other."""

    def given_up() -> float:
        return sum(counted("novel_database_retries_total", error=error) for error in ("1205", "1213"))

    before = given_up()
    return lambda: given_up() == before


Change = Callable[[Connection], Awaitable[None]]
# What somebody does who has not yet committed, and which of the stories 1 to 3 that are left to others.
CHANGES: dict[str, tuple[Change, list[int]]] = {
    "touched": (lambda conn: recounts.touch(conn, [2], window_seconds=0), [1, 3]),
    "asked for": (lambda conn: recounts.ask(conn, [2]), [1, 3]),
    "touched for the first time": (lambda conn: recounts.touch(conn, [4], window_seconds=0), [1, 2, 3]),
    "between others": (lambda conn: recounts.ask(conn, [1, 3, 4, 6]), [2]),
}
each_change = pytest.mark.parametrize(("change", "free"), CHANGES.values(), ids=CHANGES.keys())


@each_change
async def test_no_step_of_a_recount_waits_for_who_touches_a_story(
    at: SteppedPool, nobody_waited: Callable[[], bool], change: Change, free: list[int]
) -> None:
    await touch(at, 1, 2, 3)

    async def content(writer: Connection) -> None:
        await change(writer)
        claimed = await claim(at, "1")
        assert ids(claimed) == free
        assert await finish(at, claimed) == set(free)
        await touch(at, 5)
        assert ids(await claim(at, "2")) == [5]
        assert await give_back(at, "2") == 1

    await at.transaction(content)
    assert nobody_waited()


@each_change
async def test_a_claimed_story_that_is_touched_just_then_is_left_out_and_stays_claimed(
    at: SteppedPool, nobody_waited: Callable[[], bool], change: Change, free: list[int]
) -> None:
    await touch(at, 1, 2, 3)
    claimed = await claim(at, "1")
    left = [dirty for dirty in claimed if dirty.story_id not in free]

    async def content(writer: Connection) -> None:
        await change(writer)
        assert await finish(at, claimed) == set(free)
        async with at.reading() as reader:
            assert await recounts.still_ours(reader, claimed) == set(ids(left))

    await at.transaction(content)
    assert await finish(at, left) == set(ids(left))
    assert nobody_waited()


async def test_a_claimed_story_can_be_touched_and_asked_for(at: SteppedPool, nobody_waited: Callable[[], bool]) -> None:
    await touch(at, 1, 2, 3)
    claimed = await claim(at)
    await touch(at, 1, 2)
    await ask(at, 3, 4)
    assert await finish(at, claimed) == {1, 2, 3}
    assert nobody_waited()


async def test_who_holds_some_stories_keeps_nobody_from_touching_others(
    at: SteppedPool, nobody_waited: Callable[[], bool]
) -> None:
    await touch(at, 1, 3, 5, 7)
    claimed = [dirty for dirty in await claim(at) if dirty.story_id in (3, 5)]

    async def hold(worker: Connection) -> None:
        held = await recounts.hold(worker, claimed)
        await touch(at, 1, 2, 4, 6, 7, 8)
        await recounts.clear(worker, claimed, held, window_seconds=WINDOW)
        await touch(at, 1, 2, 4, 6, 7, 8)
        await ask(at, 1, 2, 4, 6, 7, 8)

    await at.transaction(hold)
    assert nobody_waited()


async def test_two_claims_at_the_same_moment_share_what_is_due(
    at: SteppedPool, nobody_waited: Callable[[], bool]
) -> None:
    await touch(at, *range(1, 11))

    async def first(worker: Connection) -> list[Dirty]:
        mine = await recounts.claim(worker, worker="1", limit=5, lease_seconds=LEASE)
        assert ids(await claim(at, "2")) == [6, 7, 8, 9, 10]
        return mine

    assert ids(await at.transaction(first)) == [1, 2, 3, 4, 5]
    assert nobody_waited()
