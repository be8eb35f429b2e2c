"""What the tests of the pool share: a counter to read and change, and looks at the server and the metrics."""

import asyncio
from collections.abc import Callable

from prometheus_client import REGISTRY

from store.connection import Connection
from store.pool import Pool

READ = "SELECT value FROM wp_novel_test_counters WHERE id = %s"
ADD = "UPDATE wp_novel_test_counters SET value = value + %s WHERE id = %s"


async def value(pool: Pool, counter: int = 1) -> int:
    async with pool.reading() as conn:
        row = await conn.fetch_one(READ, (counter,))
    assert row is not None
    return int(row[0])


async def connection_id(conn: Connection) -> int:
    row = await conn.fetch_one("SELECT CONNECTION_ID()")
    assert row is not None
    return int(row[0])


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)
