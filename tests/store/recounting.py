"""The steps of a recount, each in a transaction of its own, as workers and writers of content take them."""

from collections.abc import Iterable

from store import recounts
from store.connection import Connection
from store.recounts import Dirty
from tests.store.stepped import SteppedPool

LEASE = 120
WINDOW = 60


async def touch(pool: SteppedPool, *story_ids: int, window: float = 0) -> None:
    await pool.transaction(lambda conn: recounts.touch(conn, story_ids, window_seconds=window))


async def ask(pool: SteppedPool, *story_ids: int) -> None:
    await pool.transaction(lambda conn: recounts.ask(conn, story_ids))


async def claim(pool: SteppedPool, worker: str = "1", *, limit: int = 500) -> list[Dirty]:
    return await pool.transaction(lambda conn: recounts.claim(conn, worker=worker, limit=limit, lease_seconds=LEASE))


async def finish(pool: SteppedPool, claimed: list[Dirty]) -> set[int]:
    """As a worker that has counted; returns what was still its own."""

    async def work(conn: Connection) -> set[int]:
        held = await recounts.hold(conn, claimed)
        mine = [dirty for dirty in claimed if dirty.story_id in held]
        await recounts.clear(conn, mine, held, window_seconds=WINDOW)
        return set(held)

    return await pool.transaction(work)


async def postpone(pool: SteppedPool, dirty: Dirty, wait: float) -> None:
    async def work(conn: Connection) -> None:
        assert await recounts.hold(conn, [dirty])
        await recounts.postpone(conn, dirty, wait_seconds=wait)

    await pool.transaction(work)


async def give_back(pool: SteppedPool, worker: str) -> int:
    return await pool.transaction(lambda conn: recounts.give_back(conn, worker=worker))


def ids(claimed: Iterable[Dirty]) -> list[int]:
    return [dirty.story_id for dirty in claimed]
