"""What has to be done now and then, by whichever worker comes first: `store.upkeep` says whose turn it is.

A turn lasts `TURN_SECONDS` at most; what is left then is for the next one, which begins at once. Purges work in small
transactions and rest as long as each took, so that they never take more than half of what the database can do.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client import Counter

from runtime import logs
from runtime.settings import Settings
from store import errors, minutes, retention, retention_queue, units, upkeep, view_counters
from store.connection import Connection
from store.minutes import RollUp
from store.pool import Pool
from store.redis_link import RedisLink
from store.retention import Piece, Purge
from store.upkeep import Turn, TurnLost

log = logs.get(__name__)

TURN_SECONDS = 30.0
HOLD_SECONDS = 120.0
PURGE_EVERY_SECONDS = 300.0
MINUTE_SECONDS = 60.0
STORIES_AT_ONCE = 500

ROWS = Counter("novel_upkeep_rows_total", "Rows that maintenance changed", labelnames=("task",))
FAILED = Counter("novel_upkeep_failures_total", "Turns of maintenance that failed", labelnames=("task",))

MayGoOn = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Result:
    rows: int
    place: str | None = None
    lag_seconds: float = 0.0
    again_seconds: float | None = None
    """How soon after its beginning the task is due again, if not as usual."""

    @property
    def goes_on(self) -> bool:
        """Whether its turn ended before its work did."""
        return self.again_seconds == 0.0


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    every_seconds: float
    run: Callable[[Turn, MayGoOn], Awaitable[Result]]


@dataclass(slots=True)
class Report:
    """What became of the tasks of one look."""

    done: dict[str, Result] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    """Tasks that another is at, and who."""

    def add(self, other: "Report") -> None:
        for name, result in other.done.items():
            before = self.done.get(name)
            self.done[name] = replace(result, rows=result.rows + before.rows) if before else result
        self.failed |= other.failed
        self.held |= other.held


class Maintenance:
    def __init__(self, pool: Pool, redis: RedisLink, *, holder: str, settings: Settings, is_stopping: MayGoOn) -> None:
        self._pool = pool
        self._redis = redis
        self._holder = holder
        self._is_stopping = is_stopping
        self._tasks = {task.name: task for task in self._every_task(settings)}

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._tasks)

    async def look(self) -> Report:
        """Do what is due and nobody else is at."""
        async with self._pool.reading() as conn:
            due = await upkeep.due(conn, self._tasks)
        return await self._do(due, before_its_time=False)

    async def do(self, names: Iterable[str]) -> Report:
        """Do these tasks now, due or not; never one that somebody is at."""
        return await self._do(set(names), before_its_time=True)

    async def _do(self, names: set[str], *, before_its_time: bool) -> Report:
        report = Report()
        for name, task in self._tasks.items():
            if name not in names or self._is_stopping():
                continue
            turn = await self._take(task, before_its_time=before_its_time)
            if turn is not None:
                await self._carry_out(task, turn, report)
            elif before_its_time:
                async with self._pool.reading() as conn:
                    report.held[name] = await upkeep.holder_of(conn, name) or "somebody else"
        return report

    async def _take(self, task: Task, *, before_its_time: bool) -> Turn | None:
        async def work(conn: Connection) -> Turn | None:
            return await upkeep.take(
                conn,
                task.name,
                holder=self._holder,
                every_seconds=task.every_seconds,
                hold_seconds=HOLD_SECONDS,
                before_its_time=before_its_time,
            )

        try:
            return await self._pool.transaction(work)
        except errors.CommitUncertain:
            return None  # if it is ours it ends by itself

    async def _carry_out(self, task: Task, turn: Turn, report: Report) -> None:
        started = time.monotonic()

        def may_go_on() -> bool:
            return not self._is_stopping() and time.monotonic() - started < TURN_SECONDS

        try:
            result = await task.run(turn, may_go_on)

            async def finish(conn: Connection) -> None:
                await upkeep.finish(
                    conn,
                    turn,
                    rows=result.rows,
                    lag_seconds=result.lag_seconds,
                    place=result.place,
                    again_seconds=result.again_seconds,
                )

            await self._pool.transaction(finish)
        except TurnLost:
            report.failed[task.name] = "it took so long that somebody else has taken it over"
        except Exception as error:  # noqa: BLE001  whatever it is: other tasks and the worker go on
            report.failed[task.name] = f"{type(error).__name__}: {error}"
            FAILED.labels(task.name).inc()
            await self._give_back(turn)
        else:
            report.done[task.name] = result
            ROWS.labels(task.name).inc(result.rows)
            if result.rows:
                log.info("upkeep.done", task=task.name, rows=result.rows, seconds=round(time.monotonic() - started, 2))
        if task.name in report.failed:
            log.warning("upkeep.failed", task=task.name, error=report.failed[task.name])

    async def _give_back(self, turn: Turn) -> None:
        try:
            await self._pool.transaction(lambda conn: upkeep.give_back(conn, turn))
        except (errors.StoreError, errors.ServerRefused) as error:
            log.warning("upkeep.not_given_back", task=turn.task, error=str(error))  # it ends by itself

    # -- the tasks ----------------------------------------------------------------------------------------

    def _every_task(self, settings: Settings) -> list[Task]:
        queue = retention_queue.purges(settings.retention, idempotency_hours=settings.ingest.idempotency_hours)
        return [
            Task("waiting_chapters", MINUTE_SECONDS, self._release_waiting),
            Task("minutes", MINUTE_SECONDS, self._roll_up),
            Task("view_counters", settings.retention.counter_flush_seconds, self._flush_counters),
            *(self._purge_of(purge) for purge in (*queue, *retention.purges(settings.retention))),
        ]

    def _purge_of(self, purge: Purge) -> Task:
        async def run(turn: Turn, may_go_on: MayGoOn) -> Result:
            return await self._purge(purge, turn, may_go_on)

        return Task(purge.task, PURGE_EVERY_SECONDS, run)

    async def _purge(self, purge: Purge, turn: Turn, may_go_on: MayGoOn) -> Result:
        rows, late_seconds, place = 0, 0.0, turn.place
        while True:
            began = time.monotonic()
            piece = await self._piece(purge, place)
            rows += piece.rows
            late_seconds = max(late_seconds, piece.late_seconds)
            place = piece.place
            if place is None or not may_go_on():
                break
            await asyncio.sleep(time.monotonic() - began)
        if purge.lag_seconds is not None:
            async with self._pool.reading() as conn:
                late_seconds = await purge.lag_seconds(conn)
        again_seconds = purge.rest_seconds if place is None else 0.0
        return Result(rows, place, max(0.0, late_seconds), again_seconds)

    async def _piece(self, purge: Purge, place: str | None) -> Piece:
        return await self._pool.transaction(lambda conn: purge.piece(conn, place))

    async def _release_waiting(self, turn: Turn, may_go_on: MayGoOn) -> Result:
        """Chapters whose story came while a worker died that would have said so."""
        released, after = 0, ("", "")
        while may_go_on():
            async with self._pool.reading() as conn:
                stories = await units.waited_for(conn, after=after, limit=STORIES_AT_ONCE)
            if not stories:
                break
            released += await self._release(stories)
            after = stories[-1]
        return Result(released)

    async def _release(self, stories: Sequence[tuple[str, str]]) -> int:
        return await self._pool.transaction(lambda conn: units.release_waiting(conn, stories))

    async def _roll_up(self, turn: Turn, may_go_on: MayGoOn) -> Result:
        async def work(conn: Connection) -> RollUp:
            rolled = await minutes.roll_up(conn, turn.place)
            # Last, so that nobody waits for one who was stopped: counts that are old by now may not replace newer ones.
            await upkeep.extend(conn, turn)
            return rolled

        rolled = await self._pool.transaction(work)
        return Result(rolled.rows, rolled.place)

    async def _flush_counters(self, turn: Turn, may_go_on: MayGoOn) -> Result:
        flushed = await view_counters.flush(self._pool, self._redis, turn, may_go_on=may_go_on)
        return Result(flushed.counters, flushed.place, again_seconds=None if flushed.is_done else 0.0)
