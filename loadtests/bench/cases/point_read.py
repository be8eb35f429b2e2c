"""One story by its primary key: what the pool costs on the shortest of all statements."""

from collections.abc import Iterator
from random import Random

from loadtests.bench import drivers, pooled
from loadtests.bench.case import Bench, Case

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


CASE = Case(
    name="point_read",
    title="One story by its id, through the pool against bare asyncmy",
    unit="reads",
    ours=pooled.reading(SELECT_STORY, story_ids),
    bare=drivers.reading(drivers.ASYNCMY, SELECT_STORY, story_ids),
    target=0.7,
)
