"""A worker process among the others: it joins, its heart beats in a thread of its own, and it leaves.

The beat stops when the event loop stands still for longer than the lease: such a process does nothing, however alive it
looks. A process that was taken for dead (it was stopped for a while, say) joins anew under a new id; what it held under
the old one is another's, and the fence keeps it from writing any of it.
"""

import threading
import time

from runtime import logs
from runtime.problems import Problem
from runtime.settings import DatabaseSettings
from schema import connection
from schema.connection import Connection, ServerError
from store import workers
from worker import identity

log = logs.get(__name__)

BEATS_PER_LEASE = 6
MAX_BEAT_SECONDS = 10.0
RECONNECT_SECONDS = 1.0


class Membership:
    def __init__(self, database: DatabaseSettings, *, kind: str, lease_seconds: float) -> None:
        self._database = database
        self._kind = kind
        self._lease_seconds = lease_seconds
        self._beat_seconds = min(MAX_BEAT_SECONDS, lease_seconds / BEATS_PER_LEASE)
        self._identity = identity.mine()
        self._end = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
        self._pulse = time.monotonic()
        self._beats_since = time.monotonic()
        self.worker_id = 0
        """Changes when the process was taken for dead: read it at each claim."""

    def join(self) -> None:
        """Register, and start to beat. Raises a Problem when the database cannot be reached."""
        with connection.connect(self._database) as conn:
            self.worker_id = workers.join(conn, self._identity, kind=self._kind)
        log.info("worker.joined", worker_id=self.worker_id, kind=self._kind)
        self._thread.start()

    @property
    def is_steady(self) -> bool:
        """Whether all others have had time to beat too since the database was away: only then is silence a sign."""
        return time.monotonic() - self._beats_since > 2 * self._beat_seconds + RECONNECT_SECONDS

    def pulse(self) -> None:
        """Called by the event loop now and then, to show that it goes round."""
        self._pulse = time.monotonic()

    def doubt(self) -> None:
        """Beat now: something that was ours has been taken away, so others may take us for dead."""
        self._hurry.set()

    def leave(self) -> None:
        """Stop beating and take the row away. What the worker held has been given back before."""
        self._end.set()
        self._hurry.set()
        self._thread.join()
        try:
            with connection.connect(self._database) as conn:
                workers.leave(conn, self.worker_id)
        except (Problem, ServerError) as error:
            log.warning("worker.not_signed_off", worker_id=self.worker_id, error=str(error))
        else:
            log.info("worker.left", worker_id=self.worker_id)

    def _beat_on(self) -> None:
        while not self._end.is_set():
            try:
                with connection.connect(self._database) as conn:
                    # A server that says nothing any more must not silence us: then try another connection.
                    conn.raw._read_timeout = max(1.0, self._lease_seconds / 3)
                    self._beat_with(conn)
            except (Problem, ServerError, OSError) as error:
                log.warning("worker.heartbeat_failed", worker_id=self.worker_id, error=str(error))
                self._end.wait(RECONNECT_SECONDS)
                self._beats_since = time.monotonic()

    def _beat_with(self, conn: Connection) -> None:
        while not self._end.is_set():
            self._hurry.clear()
            if time.monotonic() - self._pulse > self._lease_seconds:
                log.error("worker.hangs", worker_id=self.worker_id, seconds=round(time.monotonic() - self._pulse))
            elif not workers.beat(conn, self.worker_id):
                before, self.worker_id = self.worker_id, workers.join(conn, self._identity, kind=self._kind)
                log.warning("worker.taken_for_dead", worker_id=before, joined_as=self.worker_id)
            self._hurry.wait(self._beat_seconds)
