"""A transaction whose owner stands still: the server ends it, so that others do not wait for it for ever."""

from runtime.settings import Settings
from store import pool as pools
from store.connection import Connection
from store.pool import Pool
from tests.store.counting import ADD, value


async def test_what_it_has_locked_is_free_again_and_it_writes_nothing(
    test_settings: Settings, pool: Pool, counters: str
) -> None:
    standing = pools.from_settings(test_settings.database, idle_transaction_seconds=1)
    attempts = 0

    async def work(conn: Connection) -> None:
        nonlocal attempts
        attempts += 1
        await conn.execute(ADD, (1, 1))
        if attempts == 1:
            # We stand still; another waits for our lock, and gets it once the server has given us up.
            await pool.transaction(lambda other: other.execute(ADD, (10, 1)))
        await conn.execute(ADD, (100, 1))

    await standing.transaction(work)
    await standing.close()
    assert attempts == 2, "it was begun again, as after any lost connection"
    assert await value(pool) == 111
