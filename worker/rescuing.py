"""Looks for dead workers, and brings back what they held. Every worker process does, so nobody waits for one of them.

A process that is seen to be gone (same machine, other boot or no such process) is dead at once. Any other is when it
has been silent for the lease; but after the database was away everybody was silent, and gets time to beat first.
What cannot be rescued now (one that was stopped in the middle of a transaction still has its locks) keeps nobody else
from it, and is tried again at the next look.
"""

from collections.abc import Awaitable, Callable

from runtime import logs
from runtime.settings import Settings
from store import errors, recounts, rescues, workers
from store.connection import Connection
from store.pool import Pool
from store.rescues import Rescued
from store.units import LeaseLost
from store.workers import Identity
from worker import identity, metrics

log = logs.get(__name__)

EVERY_SECONDS = 2.0


class Rescuer:
    def __init__(self, pool: Pool, *, settings: Settings, is_steady: Callable[[], bool]) -> None:
        """`is_steady` says whether the database has been there long enough for everybody to have beaten."""
        self._pool = pool
        self._is_steady = is_steady
        self._lease_seconds = settings.worker.lease_seconds
        self._max_crashes = settings.worker.max_crashes
        self._payload_minutes = settings.retention.payload_minutes
        self._me: Identity = identity.mine()

    async def look(self) -> int:
        """Rescue what can be rescued now; returns how many units."""
        async with self._pool.reading() as conn:
            on_host = await workers.on_host(conn, self._me.host)
            silent = await workers.silent(conn, lease_seconds=self._lease_seconds)
            orphans = await rescues.orphans(conn)
        units = 0
        for worker in on_host:
            if identity.is_gone(worker.identity, self._me):
                units += await self._rescue(worker.id, reason="gone", silent_seconds=0.0)
        if self._is_steady():
            for worker_id in silent:
                units += await self._rescue(worker_id, reason="silent", silent_seconds=self._lease_seconds)
        for worker_id in orphans:
            units += await self._bring_back(worker_id)
        return units

    async def _rescue(self, worker_id: int, *, reason: str, silent_seconds: float) -> int:
        async def work(conn: Connection) -> Rescued | None:
            rescued = await rescues.rescue(
                conn,
                worker_id,
                silent_seconds=silent_seconds,
                max_crashes=self._max_crashes,
                payload_minutes=self._payload_minutes,
            )
            if rescued is not None:
                await recounts.give_back(conn, worker=str(worker_id))
            return rescued

        return await self._try(worker_id, reason, work)

    async def _bring_back(self, worker_id: int) -> int:
        async def work(conn: Connection) -> Rescued | None:
            rescued = await rescues.bring_back(
                conn, worker_id, max_crashes=self._max_crashes, payload_minutes=self._payload_minutes
            )
            return rescued if rescued.units else None

        return await self._try(worker_id, "orphan", work)

    async def _try(self, worker_id: int, reason: str, work: Callable[[Connection], Awaitable[Rescued | None]]) -> int:
        try:
            rescued = await self._pool.transaction(work)
        except (LeaseLost, errors.StoreError, errors.ServerRefused) as error:
            log.warning("worker.not_rescued", worker_id=worker_id, reason=reason, error=repr(error))
            return 0
        if rescued is None:  # another has done it, or it has beaten
            return 0
        log.warning("worker.rescued", worker_id=worker_id, reason=reason, units=rescued.units, dead=rescued.dead)
        metrics.RESCUED.labels(reason).inc(rescued.units)
        return rescued.units
