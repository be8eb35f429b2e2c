"""`wp_novel_workers`: one row per worker process, with its heartbeat in the database's time.

A worker joins, beats, and leaves. Beats come from a thread of their own with a plain connection, so that a busy event
loop does not look dead. A worker that is silent for longer than the lease has its row deleted by whoever rescues what
it held; should it wake up again, its next beat finds no row, and it has to join anew, under a new id.
"""

from dataclasses import dataclass

from schema.connection import Connection as PlainConnection
from store.connection import Connection

_JOIN = """
    INSERT INTO wp_novel_workers
        (kind, host, boot_id, pid_namespace, pid, process_start, started_at, heartbeat_at)
    VALUES (%s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
"""
_OUR_ID = "SELECT LAST_INSERT_ID()"
# PRIMARY. heartbeat_at has no index: one that every beat rewrites would make readers and writers of it deadlock.
_BEAT = "UPDATE wp_novel_workers SET heartbeat_at = UTC_TIMESTAMP(6) WHERE id = %s"
_LEAVE = "DELETE FROM wp_novel_workers WHERE id = %s"
# A handful of rows.
_SILENT = """
    SELECT id FROM wp_novel_workers
    WHERE heartbeat_at < UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND ORDER BY id
"""
_ON_HOST = """
    SELECT id, kind, host, boot_id, pid_namespace, pid, process_start FROM wp_novel_workers WHERE host = %s ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """Where and what a process is, so that others on the same machine can see whether it lives."""

    host: str
    boot_id: str
    pid_namespace: int
    pid: int
    process_start: int
    """In clock ticks since the boot: tells a process from a later one with the same pid."""


@dataclass(frozen=True, slots=True)
class Worker:
    id: int
    kind: str
    identity: Identity


def join(conn: PlainConnection, identity: Identity, *, kind: str) -> int:
    """Register a process; returns its worker id."""
    who = identity
    conn.execute(_JOIN, (kind, who.host, who.boot_id, who.pid_namespace, who.pid, who.process_start))
    (worker_id,) = conn.fetch_one(_OUR_ID) or (0,)
    return int(worker_id)


def beat(conn: PlainConnection, worker_id: int) -> bool:
    """Say that the worker lives; False if it was taken for dead."""
    return conn.execute(_BEAT, (worker_id,)) == 1


def leave(conn: PlainConnection, worker_id: int) -> None:
    conn.execute(_LEAVE, (worker_id,))


async def silent(conn: Connection, *, lease_seconds: float) -> list[int]:
    """Workers that have not been heard of for longer than the lease."""
    rows = await conn.fetch_all(_SILENT, (round(lease_seconds * 1e6),))
    return [worker_id for (worker_id,) in rows]


async def on_host(conn: Connection, host: str) -> list[Worker]:
    rows = await conn.fetch_all(_ON_HOST, (host,))
    return [Worker(row[0], row[1], Identity(*row[2:])) for row in rows]
