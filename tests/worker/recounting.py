"""What tests of recount workers share: workers that are interrupted, and looks at the queue and at its outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from runtime.settings import Settings
from runtime.worker_settings import WorkerSettings
from schema.connection import Connection as PlainConnection
from store import recounts
from store.pool import Pool
from store.recounts import Dirty
from tests.store.counted_stories import stored
from tests.store.counting import counted
from worker.recounts import Outcome, Recounts

WINDOW, LEASE = 60, 120

Hire = Callable[..., Any]


def worker_settings(settings: Settings) -> WorkerSettings:
    return replace(settings.worker, recount_window_seconds=WINDOW, lease_seconds=LEASE, poll_seconds=0.01)


async def touch(pool: Pool, *story_ids: int, window: float = 0) -> None:
    await pool.transaction(lambda conn: recounts.touch(conn, story_ids, window_seconds=window))


async def claim(pool: Pool, worker: str) -> list[Dirty]:
    return await pool.transaction(lambda conn: recounts.claim(conn, worker=worker, limit=500, lease_seconds=LEASE))


def chapter_counts(conn: PlainConnection, story_ids: Sequence[int]) -> list[int]:
    return [stored(conn, story_id)[0] for story_id in story_ids]


def column(conn: PlainConnection, name: str) -> dict[int, Any]:
    return dict(conn.fetch_all(f"SELECT story_id, {name} FROM wp_novel_story_recount_queue"))


def outcomes() -> dict[str, float]:
    names = (*Outcome.__slots__, "failed")
    return {name: count for name in names if (count := counted("novel_recounts_total", outcome=name))}


def since(before: dict[str, float]) -> dict[str, float]:
    return {name: new for name, count in outcomes().items() if (new := count - before.get(name, 0))}


class Interrupted(Recounts):
    """Something happens each time after it has counted and before it writes."""

    async def _attempt(self, claimed: Sequence[Dirty]) -> Outcome:
        await self.happens(claimed)
        return await super()._attempt(claimed)

    happens: Callable[[Sequence[Dirty]], Any]
