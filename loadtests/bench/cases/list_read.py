"""The newest page of ongoing stories, in the order of its index."""

from collections.abc import Iterator

from loadtests.bench import drivers, pooled
from loadtests.bench.case import Bench, Case

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


CASE = Case(
    name="list_read",
    title="Twenty stories by the list_updated index, through the pool against bare asyncmy",
    unit="lists",
    ours=pooled.reading(SELECT_PAGE, statuses),
    bare=drivers.reading(drivers.ASYNCMY, SELECT_PAGE, statuses),
    target=0.8,
)
