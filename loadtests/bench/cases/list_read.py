"""The newest page of ongoing stories, in the order of its index."""

import contextlib
from collections.abc import AsyncIterator, Iterator

from loadtests.bench import drivers
from loadtests.bench.case import Bench, Case, Work
from store import pool

ONGOING = 1

# Reads list_updated backwards: twenty entries, no sort.
SELECT_PAGE = """
    SELECT id, source, slug, title, author_name, status, cover_url, chapter_count, rating_avg, rating_count,
        last_chapter_no, updated_at
    FROM wp_novel_stories FORCE INDEX (list_updated)
    WHERE deleted_at IS NULL AND status = %s
    ORDER BY updated_at DESC, id DESC LIMIT 20
"""


def statuses(bench: Bench) -> Iterator[tuple[int]]:
    while True:
        yield (ONGOING,)


@contextlib.asynccontextmanager
async def _through_the_pool(bench: Bench) -> AsyncIterator[Work]:
    connections = pool.from_settings(bench.settings.database)
    values = statuses(bench)

    async def work() -> int:
        for _ in range(drivers.READS_AT_ONCE):
            async with connections.reading() as conn:
                await conn.fetch_all(SELECT_PAGE, next(values))
        return drivers.READS_AT_ONCE

    try:
        yield work
    finally:
        await connections.close()


CASE = Case(
    name="list_read",
    title="Twenty stories by the list_updated index, through the pool against bare asyncmy",
    unit="lists",
    ours=_through_the_pool,
    bare=drivers.reading(drivers.ASYNCMY, SELECT_PAGE, statuses),
    target=0.8,
)
