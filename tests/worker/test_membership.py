"""A worker's heart: it beats whatever the event loop does, stops when that hangs, and notices when it was given up."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runtime.problems import Problem
from runtime.settings import Settings, load
from schema.connection import Connection, ServerError
from store import workers
from tests.processes import wait_for
from worker import membership as module
from worker.membership import Membership

QUICK_SECONDS = 0.3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECONNECT_SECONDS", 0.05)


@contextmanager
def joined(settings: Settings, *, lease_seconds: float = 120.0) -> Iterator[Membership]:
    membership = Membership(settings.database, kind="stories", lease_seconds=lease_seconds)
    membership.join()
    try:
        yield membership
    finally:
        membership.leave()


def silent_seconds(conn: Connection, worker_id: int) -> float | None:
    rows = conn.fetch_all(
        "SELECT TIMESTAMPDIFF(MICROSECOND, heartbeat_at, UTC_TIMESTAMP(6)) / 1e6 FROM wp_novel_workers WHERE id = %s",
        (worker_id,),
    )
    return float(rows[0][0]) if rows else None


def beats(conn: Connection) -> list[object]:
    return [row[0] for row in conn.fetch_all("SELECT heartbeat_at FROM wp_novel_workers ORDER BY id")]


def beats_on(conn: Connection, membership: Membership) -> None:
    """Wait until it has beaten again."""
    before = beats(conn)

    def has_beaten() -> bool:
        membership.pulse()
        return beats(conn) != before

    wait_for(has_beaten)


def kill_connections(conn: Connection) -> int:
    """Cut off every connection but this one."""
    killed = 0
    for (number,) in conn.fetch_all(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()"
    ):
        conn.execute("KILL %s", (number,))
        killed += 1
    return killed


def test_a_worker_is_there_from_its_joining_to_its_leaving(conn: Connection, test_settings: Settings) -> None:
    with joined(test_settings) as membership:
        assert conn.fetch_all("SELECT id, kind FROM wp_novel_workers") == [(membership.worker_id, "stories")]
        assert membership.is_current
    assert conn.fetch_all("SELECT id FROM wp_novel_workers") == []


def test_it_beats_whatever_the_main_thread_does(conn: Connection, test_settings: Settings) -> None:
    with joined(test_settings, lease_seconds=1.0) as membership:
        before = beats(conn)
        deadline = time.monotonic() + 30
        while beats(conn) == before:  # busy, as an event loop that computes
            membership.pulse()
            assert time.monotonic() < deadline


def test_a_hung_event_loop_silences_the_heart_and_one_that_goes_on_lets_it_beat(
    conn: Connection, test_settings: Settings
) -> None:
    with joined(test_settings, lease_seconds=QUICK_SECONDS) as membership:
        # Nobody calls pulse(): the loop hangs.
        wait_for(lambda: (silent_seconds(conn, membership.worker_id) or 0) > 2 * QUICK_SECONDS)
        assert not membership.is_current
        beats_on(conn, membership)


def test_who_was_taken_for_dead_joins_anew_under_another_id(conn: Connection, test_settings: Settings) -> None:
    with joined(test_settings) as membership:
        before = membership.worker_id
        conn.execute("DELETE FROM wp_novel_workers")
        membership.doubt()  # the next beat would be long in coming
        wait_for(lambda: membership.worker_id != before)
        assert conn.fetch_all("SELECT id FROM wp_novel_workers") == [(membership.worker_id,)]
    assert conn.fetch_all("SELECT id FROM wp_novel_workers") == []


def test_a_doubt_after_a_long_stop_is_settled_by_one_beat(conn: Connection, test_settings: Settings) -> None:
    """The event loop that doubts goes round: the heart must not wait for its next pulse."""
    with joined(test_settings) as membership:
        before = membership.worker_id
        conn.execute("DELETE FROM wp_novel_workers")
        membership._pulse -= 3600.0
        membership.doubt()
        wait_for(lambda: membership.worker_id != before, seconds=5)


def test_a_connection_that_is_cut_off_costs_a_beat_and_not_the_life(conn: Connection, test_settings: Settings) -> None:
    with joined(test_settings, lease_seconds=2.0) as membership:
        before = membership.worker_id
        wait_for(lambda: kill_connections(conn))
        beats_on(conn, membership)
        assert membership.worker_id == before


@pytest.mark.parametrize("error", [Problem("away"), ServerError(9999, "odd"), OSError("odd"), ValueError("odd")])
def test_no_error_stops_the_heart(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real, failures = workers.beat, iter([error, error])

    def beat(conn: Connection, worker_id: int) -> bool:
        if failure := next(failures, None):
            raise failure
        return real(conn, worker_id)

    monkeypatch.setattr(workers, "beat", beat)
    with joined(test_settings, lease_seconds=1.0) as membership:
        beats_on(conn, membership)


def test_silence_of_others_is_no_sign_before_all_had_time_to_beat_since_the_database_was_away(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakedClock(monkeypatch)
    with joined(test_settings, lease_seconds=120.0) as membership:
        assert signs(membership) == CURRENT  # it has only just come
        clock.passes(60.0)
        assert signs(membership) == CURRENT  # it stood still itself: what stopped it may have stopped the others
        for _ in range(3):
            beats_on_at_once(conn, membership)
            assert signs(membership) == CURRENT
            clock.passes(9.0)
        beats_on_at_once(conn, membership)
        assert signs(membership) == STEADY
        clock.passes(121.0)
        assert signs(membership) == ""
        beats_on_at_once(conn, membership)
        assert signs(membership) == CURRENT


CURRENT, STEADY = "current", "current and steady"


def signs(membership: Membership) -> str:
    return " and ".join(name for name in ("current", "steady") if getattr(membership, f"is_{name}"))


def beats_on_at_once(conn: Connection, membership: Membership) -> None:
    before = beats(conn)
    membership.doubt()
    wait_for(lambda: beats(conn) != before and membership._last_beat >= module._now() - 0.001)


class FakedClock:
    """The clock of memberships, which only moves when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "_now", lambda: self.now)

    def passes(self, seconds: float) -> None:
        self.now += seconds


def test_leaving_needs_no_database(conn: Connection, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(environ)
    membership = Membership(settings.database, kind="stories", lease_seconds=120.0)
    membership.join()
    gone = load(environ | {"NOVEL_DATABASE_URL": "mysql://u:p@127.0.0.1:1/d"}).database
    membership._database = gone
    membership.leave()
    assert not membership._thread.is_alive()
    assert silent_seconds(conn, membership.worker_id) is not None  # others see that the process is gone


def test_leaving_does_not_wait_for_a_database_that_says_nothing(
    conn: Connection, test_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that waits for its answer may take a third of the lease, far longer than a stop."""
    monkeypatch.setattr(module, "LEAVE_SECONDS", 0.1)
    membership = Membership(test_settings.database, kind="stories", lease_seconds=120.0)
    membership.join()
    with conn.transaction():
        conn.fetch_all("SELECT id FROM wp_novel_workers FOR UPDATE")  # the beat waits for this row
        membership.doubt()
        under_way = "SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE wp_novel_workers%'"
        wait_for(lambda: conn.fetch_all(under_way))
        membership.leave()
        assert membership._thread.is_alive()
    membership._thread.join(30)
    assert not membership._thread.is_alive()


def test_a_leaving_that_comes_just_as_a_beat_begins_is_heard(conn: Connection, test_settings: Settings) -> None:
    """Else it would take as long as the pause between two beats."""
    membership = Membership(test_settings.database, kind="stories", lease_seconds=3600.0)
    clear = membership._hurry.clear

    def end_just_before() -> None:
        membership._end.set()
        membership._hurry.set()
        clear()

    membership._hurry.clear = end_just_before  # type: ignore[method-assign]
    membership.join()
    membership._thread.join(5)
    assert not membership._thread.is_alive()
    membership.leave()


def test_joining_without_a_database_is_a_problem_of_one_line(environ: dict[str, str]) -> None:
    gone = load(environ | {"NOVEL_DATABASE_URL": "mysql://u:p@127.0.0.1:1/d"}).database
    with pytest.raises(Problem, match=r"^no database server answers at 127\.0\.0\.1:1\."):
        Membership(gone, kind="stories", lease_seconds=120.0).join()
