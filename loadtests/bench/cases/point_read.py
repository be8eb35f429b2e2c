"""One story by its primary key: what the pool costs on the shortest of all statements."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from random import Random

from loadtests.bench import drivers
from loadtests.bench.case import Bench, Case, Work
from store import pool

# Reads PRIMARY.
SELECT_STORY = """
    SELECT id, source, slug, title, title_original, author_name, status, cover_url, summary, language, chapter_count,
        word_count, rating_avg, rating_count, last_chapter_no, published_at, updated_at
    FROM wp_novel_stories WHERE id = %s
"""


def story_ids(bench: Bench) -> Iterator[tuple[int]]:
    """Stories at random, the same for both sides."""
    random = Random(1)
    while True:
        yield (random.randint(1, bench.sizes.stories),)


@contextlib.asynccontextmanager
async def _through_the_pool(bench: Bench) -> AsyncIterator[Work]:
    connections = pool.from_settings(bench.settings.database)
    ids = story_ids(bench)

    async def work() -> int:
        for _ in range(drivers.READS_AT_ONCE):
            async with connections.reading() as conn:
                await conn.fetch_one(SELECT_STORY, next(ids))
        return drivers.READS_AT_ONCE

    try:
        yield work
    finally:
        await connections.close()


CASE = Case(
    name="point_read",
    title="One story by its id, through the pool against bare asyncmy",
    unit="reads",
    ours=_through_the_pool,
    bare=drivers.reading(drivers.ASYNCMY, SELECT_STORY, story_ids),
    target=0.7,
)
