"""A worker process among the others: it joins, its heart beats in a thread of its own, and it leaves.

The beat stops when the event loop stands still for longer than the lease: such a process does nothing, however alive it
looks. A process that was taken for dead (it was stopped for a while, say) joins anew under a new id; what it held under
the old one is another's, and the fence keeps it from writing any of it. Whoever has not beaten for so long claims
nothing before it has: what it took under an id that is gone would count as a dead worker's.
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
# A beat under way, to a server that says nothing any more.
LEAVE_SECONDS = 5.0


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
        self._pulse = _now()
        self._beats_since = _now()
        self._last_beat = float("-inf")
        self.worker_id = 0
        """Changes when the process was taken for dead: read it at each claim."""

    def join(self) -> None:
        """Register, and start to beat. Raises a Problem when the database cannot be reached."""
        with connection.connect(self._database) as conn:
            self._last_beat = _now()
            self.worker_id = workers.join(conn, self._identity, kind=self._kind)
        log.info("worker.joined", worker_id=self.worker_id, kind=self._kind)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether our latest beat is so young that nobody can have taken us for dead since."""
        return _now() - self._last_beat < self._lease_seconds

    @property
    def is_steady(self) -> bool:
        """Whether all others have had time to beat too since the database was away: only then is silence a sign.

        Nor is it one after we stood still ourselves: what stopped us may have stopped the others.
        """
        now = _now()
        has_beaten = self.is_current and now - self._last_beat < self._steady_seconds
        return has_beaten and now - self._beats_since > self._steady_seconds

    @property
    def _steady_seconds(self) -> float:
        return 2 * self._beat_seconds + RECONNECT_SECONDS

    def pulse(self) -> None:
        """Called by the event loop now and then, to show that it goes round."""
        self._pulse = _now()

    def doubt(self) -> None:
        """Beat now: we may have been taken for dead. Called by the event loop, which so goes round."""
        self.pulse()
        self._hurry.set()

    def leave(self) -> None:
        """Stop beating and take the row away. What the worker held has been given back before."""
        self._end.set()
        self._hurry.set()
        self._thread.join(LEAVE_SECONDS)
        if self._thread.is_alive():  # then the server would not hear us either: others see that we are gone
            log.warning("worker.not_signed_off", worker_id=self.worker_id, error="the database gives no answer")
            return
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
            except Exception as error:  # noqa: BLE001  whatever it is: without a heart we would be taken for dead
                log.warning("worker.heartbeat_failed", worker_id=self.worker_id, error=repr(error))
                self._end.wait(RECONNECT_SECONDS)
                self._beats_since = _now()

    def _beat_with(self, conn: Connection) -> None:
        while True:
            self._hurry.clear()
            if self._end.is_set():  # looked at after the clearing, which may have swallowed the hurry of the end
                return
            if _now() - self._pulse > self._lease_seconds:
                log.error("worker.hangs", worker_id=self.worker_id, seconds=round(_now() - self._pulse))
            else:
                self._beat(conn)
            self._hurry.wait(self._beat_seconds)

    def _beat(self, conn: Connection) -> None:
        began = _now()
        if not workers.beat(conn, self.worker_id):
            before, self.worker_id = self.worker_id, workers.join(conn, self._identity, kind=self._kind)
            log.warning("worker.taken_for_dead", worker_id=before, joined_as=self.worker_id)
        if began - self._last_beat > self._steady_seconds:
            self._beats_since = began
        self._last_beat = began


def _now() -> float:
    """Seconds on a clock that goes on while the machine sleeps, as the database's does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
