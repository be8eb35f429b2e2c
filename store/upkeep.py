"""`wp_novel_upkeep`: whose turn a task of maintenance is, in the database's time.

Any process may take a task that is due and that nobody holds. It has it for `hold_seconds`, and longer if it extends
its turn; if it dies, the next one takes the task after that. What a turn records is fenced: once somebody else has
taken the task, whoever had it before changes nothing any more. So that a process is told from itself in an earlier
turn, its name in the table has a mark that no other turn has.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from store.connection import Connection

MAX_HOLDER_CHARACTERS = 57

# A row per task: a scan of the whole table.
_STATES = """
    SELECT task, held_until <= UTC_TIMESTAMP(6) AND next_run_at <= UTC_TIMESTAMP(6) FROM wp_novel_upkeep
"""
# PRIMARY. Of two who make it at once, one waits for the other's COMMIT and changes nothing.
_CREATE = """
    INSERT INTO wp_novel_upkeep (task, held_until, next_run_at) VALUES (%s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE task = task
"""
# PRIMARY. Of two who take it at once, one waits for the other's COMMIT and then finds it held.
_TAKE = """
    UPDATE wp_novel_upkeep SET holder = %s, held_until = UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND
    WHERE task = %s AND held_until <= UTC_TIMESTAMP(6) AND (next_run_at <= UTC_TIMESTAMP(6) OR %s)
"""
# PRIMARY.
_TAKEN = "SELECT place, UTC_TIMESTAMP(6) FROM wp_novel_upkeep WHERE task = %s"
# PRIMARY.
_HOLDER = "SELECT holder FROM wp_novel_upkeep WHERE task = %s AND held_until > UTC_TIMESTAMP(6)"
# PRIMARY, and only as long as the turn is ours; also in what follows.
_EXTEND = """
    UPDATE wp_novel_upkeep SET held_until = UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND WHERE task = %s AND holder = %s
"""
_REMEMBER = "UPDATE wp_novel_upkeep SET place = %s WHERE task = %s AND holder = %s"
_FINISH = """
    UPDATE wp_novel_upkeep
    SET holder = NULL, held_until = UTC_TIMESTAMP(6), finished_at = UTC_TIMESTAMP(6),
        seconds = TIMESTAMPDIFF(MICROSECOND, %s, UTC_TIMESTAMP(6)) / 1000000,
        changed_rows = %s, lag_seconds = %s, place = %s, next_run_at = %s + INTERVAL %s MICROSECOND
    WHERE task = %s AND holder = %s
"""
_GIVE_BACK = """
    UPDATE wp_novel_upkeep
    SET holder = NULL, held_until = UTC_TIMESTAMP(6), next_run_at = UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND
    WHERE task = %s AND holder = %s
"""


class TurnLost(Exception):
    """Somebody else has this task by now."""


@dataclass(frozen=True, slots=True)
class Turn:
    task: str
    holder: str
    """As in the table, with the mark of this turn."""
    every_seconds: float
    hold_seconds: float
    taken_at: datetime
    place: str | None
    """Where the last turn ended."""


async def due(conn: Connection, tasks: Collection[str]) -> set[str]:
    """Those of these tasks that could be taken now; also those that nobody has ever taken."""
    states: dict[str, int | None] = dict(await conn.fetch_all(_STATES))
    return {task for task in tasks if states.get(task, 1)}


async def take(
    conn: Connection,
    task: str,
    *,
    holder: str,
    every_seconds: float,
    hold_seconds: float,
    before_its_time: bool = False,
) -> Turn | None:
    """Take a task that is due, or None; before its time, if asked to, but never one that is held."""
    marked = f"{holder[:MAX_HOLDER_CHARACTERS]}/{secrets.token_hex(3)}"
    values = (marked, _microseconds(hold_seconds), task, int(before_its_time))
    if not await conn.execute(_TAKE, values) and not (
        await conn.execute(_CREATE, (task,)) and await conn.execute(_TAKE, values)
    ):
        return None
    row = await conn.fetch_one(_TAKEN, (task,))
    assert row is not None
    place, taken_at = row
    return Turn(task, marked, every_seconds, hold_seconds, taken_at, place)


async def holder_of(conn: Connection, task: str) -> str | None:
    """Who holds a task now."""
    row = await conn.fetch_one(_HOLDER, (task,))
    return row[0].rpartition("/")[0] if row and row[0] else None


async def extend(conn: Connection, turn: Turn) -> None:
    """Hold a task for as long again, from now on; raises TurnLost."""
    _require(await conn.execute(_EXTEND, (_microseconds(turn.hold_seconds), turn.task, turn.holder)))


async def remember(conn: Connection, turn: Turn, place: str) -> None:
    """Write down, in the transaction of what was done, how far that is, which must be another place than before.

    Raises TurnLost, so that it is not done.
    """
    _require(await conn.execute(_REMEMBER, (place, turn.task, turn.holder)))


async def finish(
    conn: Connection,
    turn: Turn,
    *,
    rows: int,
    lag_seconds: float,
    place: str | None,
    again_seconds: float | None = None,
) -> None:
    """End a turn and record how it went; raises TurnLost.

    The next one begins `every_seconds` after this one began, or as long after it as is said.
    """
    again = _microseconds(turn.every_seconds if again_seconds is None else again_seconds)
    began = turn.taken_at
    _require(
        await conn.execute(_FINISH, (began, rows, lag_seconds, place, began, again, turn.task, turn.holder)),
    )


async def give_back(conn: Connection, turn: Turn) -> None:
    """End a turn that failed; whoever is next tries it again after `every_seconds`. What was recorded stays."""
    await conn.execute(_GIVE_BACK, (_microseconds(turn.every_seconds), turn.task, turn.holder))


def _require(changed_rows: int) -> None:
    if not changed_rows:
        raise TurnLost


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
