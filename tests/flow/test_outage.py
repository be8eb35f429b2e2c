"""The database dies under load and comes back: workers live on, and no item pays for it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runtime.problems import Problem
from runtime.settings import load
from schema import connection
from schema.connection import Connection
from tests.cli.test_serve import OwnDatabase
from tests.processes import wait_for
from tests.worker.batches import DONE, add_stories, all_ended, chapter, count, ended, push
from tests.worker.processes import CHAPTERS, are_held_up, joined, slow_chapters, working

BATCHES = 24
ITEMS = 25
# Batch and chapter. They are not claimed together: each holds up a set of its own, and so one of two processes.
SLOW = ((10, 20), (14, 20))
DRAIN = ("--concurrency", "2", "--drain")


@pytest.fixture
def own_database(scratch: Path) -> Iterator[OwnDatabase]:
    database = OwnDatabase(scratch / "outage-db")
    yield database
    database.child.stop()


def load_up(conn: Connection) -> list[str]:
    """Many batches, of which two are held up when half of them are done."""
    add_stories(conn, range(BATCHES))
    return [
        push(conn, [chapter(n, story=b, slug="slow" if (b, n) in SLOW else "") for n in range(1, ITEMS + 1)])
        for b in range(BATCHES)
    ]


def test_a_database_that_is_killed_under_load_costs_no_item_an_attempt_and_no_worker_its_life(
    tmp_path: Path, own_database: OwnDatabase
) -> None:
    """Not even that of one that drains: it waits out the outage."""
    settings = load(own_database.variables)
    with connection.connect(settings.database) as conn:
        requests = load_up(conn)
    with working(tmp_path, own_database.variables, *CHAPTERS, "--limit", str(2 * ITEMS), *DRAIN) as worker:
        with suppress(Problem), connection.connect(settings.database) as conn, slow_chapters(conn):
            wait_for(lambda: are_held_up(conn) == 2 and len(joined(conn)) == 2)
            workers = joined(conn)
            own_database.kill()
        wait_for(lambda: worker.said().count("worker.heartbeat_failed") >= len(workers))
        own_database.start_again()
        with connection.connect(settings.database) as conn:
            conn.execute("DROP TRIGGER wp_novel_test_slow")
            wait_for(lambda: all_ended(conn), seconds=60)
            assert worker.wait() == 0
            assert {item for request_id in requests for item in ended(conn, request_id)} == {DONE}
            assert conn.fetch_all(
                "SELECT DISTINCT status, processed_items, failed_items FROM wp_novel_ingest_requests"
            ) == [(2, ITEMS, 0)]
            assert count(conn, "chapters") == BATCHES * ITEMS
    assert "child.died" not in worker.said()
    assert "Traceback" not in worker.said()
