"""A key is rotated into its next version, once, whoever else does so at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection
from schema.connection import Connection
from store import api_keys
from store.api_keys import State
from tests.store.test_api_keys import (
    ANOTHER_MASTER_KEY,
    MASTER_KEY,
    journal_of,
    listed,
    refusal,
    rotate,
    set_terms,
)

HOURS_LEFT = """
    SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), expires_at) / 60 FROM wp_novel_api_key_terms WHERE key_id = %s
"""


@pytest.fixture
def key_id(conn: Connection) -> str:
    """The first version of a key that may push chapters of two sources."""
    key_id, _ = api_keys.create(
        conn,
        name="crawler 1",
        permissions=("ingest:chapters", "ingest:stats"),
        sources=["a", "ấ"],
        master_key=MASTER_KEY,
        operator="a test",
    )
    return key_id


def version(key_id: str, number: int) -> str:
    return f"{key_id.removesuffix('.1')}.{number}"


def test_the_next_version_has_the_same_name_and_scope_and_a_secret_of_its_own(conn: Connection, key_id: str) -> None:
    made = rotate(conn, key_id)
    assert made.key_id == version(key_id, 2)
    assert made.secret == api_keys.derive_secret(MASTER_KEY, made.key_id) != api_keys.derive_secret(MASTER_KEY, key_id)
    new = listed(conn)[made.key_id]
    assert (new.name, new.permissions, new.sources) == ("crawler 1", ("ingest:chapters", "ingest:stats"), ("a", "ấ"))
    assert (new.state, new.expires_at) == (State.ACTIVE, None)
    assert api_keys.check_secret(new, MASTER_KEY) == made.secret
    assert made.secret not in repr(made)


@pytest.mark.parametrize("hours", [1, 24, 8760])
def test_the_old_key_stays_valid_for_the_overlap(conn: Connection, key_id: str, hours: int) -> None:
    made = rotate(conn, key_id, overlap_hours=hours)
    old = listed(conn)[key_id]
    assert made.replaced == old
    assert old.state is State.ACTIVE
    ((left,),) = conn.fetch_all(HOURS_LEFT, (key_id,))
    assert hours - 0.5 < left <= hours
    assert [key.key_id for key in api_keys.active(conn, name="crawler 1")] == [made.key_id, key_id]


def test_without_an_overlap_the_old_key_is_over_at_once(conn: Connection, key_id: str) -> None:
    made = rotate(conn, key_id, overlap_hours=0)
    assert listed(conn)[key_id].state is State.EXPIRED
    assert [key.key_id for key in api_keys.active(conn, name="crawler 1")] == [made.key_id]


def test_who_rotated_a_key_is_written_down_without_its_secret(conn: Connection, key_id: str) -> None:
    made = rotate(conn, key_id, overlap_hours=6)
    rotate(conn, made.key_id, overlap_hours=0)
    third = version(key_id, 3)
    by = "(crawler 1) was rotated into"
    assert journal_of(conn, "api_key.rotated") == [
        (
            key_id,
            f"API key {key_id} {by} {made.key_id} by the rotating test; it ends in 6 hours.",
            f'{{"operator":"the rotating test","new_key_id":"{made.key_id}","overlap_hours":6}}',
        ),
        (
            made.key_id,
            f"API key {made.key_id} {by} {third} by the rotating test; it ends at once.",
            f'{{"operator":"the rotating test","new_key_id":"{third}","overlap_hours":0}}',
        ),
    ]
    assert [reference for reference, *_ in journal_of(conn, "api_key.created")] == [key_id, made.key_id, third]
    for (table,) in conn.fetch_all("SHOW TABLES"):
        assert made.secret not in repr(conn.fetch_all(f"SELECT * FROM `{table}`"))


def add_revoked(conn: Connection, key_id: str) -> None:
    conn.execute(
        "INSERT INTO wp_novel_api_keys (key_name, key_id, secret_hash, permissions, is_active, created_at)"
        " VALUES ('other', %s, '', '', 0, UTC_TIMESTAMP())",
        (key_id,),
    )


def test_versions_are_counted_as_numbers(conn: Connection, key_id: str) -> None:
    add_revoked(conn, version(key_id, 9))
    add_revoked(conn, version(key_id, 10))
    assert rotate(conn, key_id).key_id == version(key_id, 11)


def test_keys_with_ids_that_look_alike_are_no_family(conn: Connection, key_id: str) -> None:
    base = key_id.removesuffix(".1")
    for other in (f"{base}0.9", f"{base}.1.7", f"{base}.x", f"{base}/8", base.replace("_", "-") + ".6", f"{base}.05"):
        add_revoked(conn, other)
    assert rotate(conn, key_id).key_id == f"{base}.2"


def test_a_locked_key_is_rotated_into_one_that_is_not(conn: Connection, key_id: str) -> None:
    set_terms(conn, key_id, locked_until=1)
    made = rotate(conn, key_id)
    assert (made.replaced.state, listed(conn)[made.key_id].state) == (State.LOCKED, State.ACTIVE)


def test_a_revoked_key_cannot_be_rotated(conn: Connection, key_id: str) -> None:
    api_keys.revoke(conn, key_id, operator="a test")
    line = refusal(conn, lambda: rotate(conn, key_id))
    assert line == f"API key {key_id} is revoked and cannot be rotated. Make a new one with: novel keys create"


def test_an_expired_key_cannot_be_rotated_and_its_successor_is_named(conn: Connection, key_id: str) -> None:
    set_terms(conn, key_id, expires_at=-1)
    line = refusal(conn, lambda: rotate(conn, key_id))
    assert line == f"API key {key_id} is expired and cannot be rotated. Make a new one with: novel keys create"
    set_terms(conn, key_id, expires_at=1)
    new = rotate(conn, key_id, overlap_hours=0).key_id
    assert refusal(conn, lambda: rotate(conn, key_id)) == (
        f"API key {key_id} is expired and cannot be rotated."
        f" Rotate {new}, which took its place, or make a new one with: novel keys create"
    )


def test_a_key_that_was_rotated_is_not_rotated_again(conn: Connection, key_id: str) -> None:
    new = rotate(conn, key_id).key_id
    line = refusal(conn, lambda: rotate(conn, key_id))
    assert line == f"API key {key_id} was rotated already: {new} took its place. Rotate that one."


def test_a_key_whose_successor_is_over_is_rotated_into_a_version_that_never_was(conn: Connection, key_id: str) -> None:
    leaked = rotate(conn, key_id).key_id
    api_keys.revoke(conn, leaked, operator="a test")
    assert rotate(conn, key_id).key_id == version(key_id, 3)
    # And the one that was revoked has no successor in the one before it.
    api_keys.revoke(conn, version(key_id, 3), operator="a test")
    assert "which took its place" not in refusal(conn, lambda: rotate(conn, leaked))


def test_a_key_of_another_master_key_is_not_rotated(conn: Connection, key_id: str) -> None:
    line = refusal(conn, lambda: rotate(conn, key_id, master_key=ANOTHER_MASTER_KEY))
    assert line.startswith(f"API key {key_id} was made under another master key.")


def test_a_key_without_a_version_cannot_be_rotated(conn: Connection, key_id: str) -> None:
    conn.execute("UPDATE wp_novel_api_keys SET key_id = 'by-hand' WHERE key_id = %s", (key_id,))
    assert refusal(conn, lambda: rotate(conn, "by-hand")) == (
        "API key by-hand has no version in its id and cannot be rotated. Make a new one with: novel keys create"
    )


def test_a_rotation_that_cannot_be_written_down_does_not_happen(conn: Connection, key_id: str) -> None:
    before = listed(conn)
    conn.execute("ALTER TABLE wp_novel_sync_logs RENAME TO wp_novel_sync_logs_away")
    try:
        with pytest.raises(Exception, match="wp_novel_sync_logs"):
            rotate(conn, key_id)
    finally:
        conn.execute("ALTER TABLE wp_novel_sync_logs_away RENAME TO wp_novel_sync_logs")
    assert listed(conn) == before


def together(settings: Settings, key_ids: list[str], *, overlap_hours: int) -> list[str]:
    """Rotate these at the same moment, each on a connection of its own; returns new ids, and refusals."""
    start = Barrier(len(key_ids))

    def one(key_id: str) -> str:
        with connection.connect(settings.database) as own:
            start.wait(30)
            try:
                return rotate(own, key_id, overlap_hours=overlap_hours).key_id
            except Problem as problem:
                return str(problem)

    with ThreadPoolExecutor(len(key_ids)) as threads:
        return list(threads.map(one, key_ids))


@pytest.mark.parametrize("overlap_hours", [0, 24])
def test_of_rotations_at_the_same_moment_one_happens_and_the_others_are_told(
    test_settings: Settings, conn: Connection, key_id: str, overlap_hours: int
) -> None:
    newest = key_id
    for number in range(2, 6):
        said = together(test_settings, [newest] * 6, overlap_hours=overlap_hours)
        expected = version(key_id, number)
        assert said.count(expected) == 1
        refusals = [line for line in said if line != expected]
        assert all(f"API key {newest} " in line and expected in line for line in refusals)
        newest = expected
    assert set(listed(conn)) == {version(key_id, number) for number in range(1, 6)}
    assert len(journal_of(conn, "api_key.rotated")) == 4


def test_rotations_of_two_versions_at_the_same_moment_do_not_lock_each_other_out(
    test_settings: Settings, conn: Connection, key_id: str
) -> None:
    old, new = key_id, rotate(conn, key_id).key_id
    for number in range(3, 8):
        said = together(test_settings, [old, new, old, new], overlap_hours=24)
        expected = version(key_id, number)
        assert said.count(expected) == 1
        assert all("took its place" in line for line in said if line != expected)
        old, new = new, expected


def test_a_revocation_beside_a_rotation_is_never_lost(test_settings: Settings, conn: Connection, key_id: str) -> None:
    start = Barrier(2)

    def revoke(key_id: str) -> None:
        with connection.connect(test_settings.database) as own:
            start.wait(30)
            api_keys.revoke(own, key_id, operator="a test")

    for _ in range(5):
        with ThreadPoolExecutor(1) as threads:
            revoking = threads.submit(revoke, key_id)
            start.wait(30)
            try:
                key_id = rotate(conn, key_id).key_id
            except Problem:  # the revocation was first
                key_id, _ = api_keys.create(
                    conn, name="next", permissions=("ingest:stats",), master_key=MASTER_KEY, operator="a test"
                )
            revoking.result()
    *past, last = api_keys.every(conn)
    assert {key.state for key in past} == {State.REVOKED}
    assert last.state is State.ACTIVE
