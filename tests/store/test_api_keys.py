from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any

import argon2
import pytest

from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, migrator
from schema.connection import Connection
from store import api_keys
from store.api_keys import ApiKey, KeyRecord, Rotation, State

MASTER_KEY = "a master key for tests, long enough"
ANOTHER_MASTER_KEY = "another master key, as long as that"

KeyFactory = Callable[..., tuple[str, str]]


@pytest.fixture
def make_key(conn: Connection) -> KeyFactory:
    def make(
        *, name: str = "crawler", permissions: tuple[str, ...] = ("ingest:stories",), sources: Sequence[str] = ()
    ) -> tuple[str, str]:
        return api_keys.create(
            conn, name=name, permissions=permissions, master_key=MASTER_KEY, operator="a test", sources=sources
        )

    return make


def found(conn: Connection, name: str = "crawler") -> ApiKey:
    key = next(iter(api_keys.active(conn, name=name)), None)
    assert key is not None
    return key


def rotate(conn: Connection, key_id: str, *, overlap_hours: int = 24, master_key: str = MASTER_KEY) -> Rotation:
    return api_keys.rotate(
        conn, key_id, overlap_hours=overlap_hours, master_key=master_key, operator="the rotating test"
    )


def listed(conn: Connection) -> dict[str, KeyRecord]:
    return {key.key_id: key for key in api_keys.every(conn)}


def set_terms(conn: Connection, key_id: str, **hours_from_now: int) -> None:
    for column, hours in hours_from_now.items():
        conn.execute(
            f"UPDATE wp_novel_api_key_terms SET {column} = UTC_TIMESTAMP() + INTERVAL %s HOUR WHERE key_id = %s",
            (hours, key_id),
        )


def forget_terms(conn: Connection, key_id: str) -> None:
    """As a key was before there were terms."""
    conn.execute("DELETE FROM wp_novel_api_key_terms WHERE key_id = %s", (key_id,))


def journal_of(conn: Connection, event: str) -> list[tuple[Any, ...]]:
    return conn.fetch_all(
        "SELECT reference_id, message, context_json FROM wp_novel_sync_logs WHERE event_type = %s ORDER BY id", (event,)
    )


def refusal(conn: Connection, act: Callable[[], object]) -> str:
    """What is said by an act that is refused, and changes nothing."""
    before = listed(conn), conn.fetch_all("SELECT id FROM wp_novel_sync_logs")
    with pytest.raises(Problem) as problem:
        act()
    assert (listed(conn), conn.fetch_all("SELECT id FROM wp_novel_sync_logs")) == before
    return str(problem.value)


@pytest.mark.parametrize(
    ("key_id", "secret"),
    [  # printf 'novel-api-keynk_4f1c09aa.11' | openssl dgst -sha256 -hmac "$MASTER_KEY" -binary | basenc --base64url
        ("nk_4f1c09aa.1", "fO6uXYM5SJMPWyfWWNUpN9MIHtKs5sli86BTVZbEiUA"),
        ("nk_4f1c09aa.2", "0J_AG2rv7VTP7c6FH68P_n5TSmFFxEGfdApei4DnfTE"),
    ],
)
def test_a_secret_is_the_hmac_of_key_id_and_version_under_the_master_key(key_id: str, secret: str) -> None:
    assert api_keys.derive_secret(MASTER_KEY, key_id) == secret


def test_another_master_key_gives_another_secret() -> None:
    secrets = {api_keys.derive_secret(key, "nk_4f1c09aa.1") for key in (MASTER_KEY, ANOTHER_MASTER_KEY, "ố" * 32)}
    assert len(secrets) == 3


def test_a_new_key_is_found_by_its_name_with_what_it_may_do(conn: Connection, make_key: KeyFactory) -> None:
    key_id, secret = make_key(permissions=api_keys.PERMISSIONS)
    key = found(conn)
    assert (key.key_id, key.permissions) == (key_id, ("ingest:stories", "ingest:chapters", "ingest:stats"))
    assert secret == api_keys.derive_secret(MASTER_KEY, key_id)
    assert api_keys.check_secret(key, MASTER_KEY) == secret
    assert key_id.startswith("nk_")
    assert key_id.endswith(".1")


def test_the_hash_is_argon2id_and_the_secret_is_stored_nowhere(conn: Connection, make_key: KeyFactory) -> None:
    _, secret = make_key()
    hashed = found(conn).secret_hash
    assert hashed.startswith("$argon2id$")
    assert argon2.PasswordHasher().verify(hashed, secret)
    for (table,) in conn.fetch_all("SHOW TABLES"):
        assert secret not in repr(conn.fetch_all(f"SELECT * FROM `{table}`"))


def test_who_made_a_key_is_written_down(conn: Connection, make_key: KeyFactory) -> None:
    key_id, _ = make_key(name="crawler 1")
    restricted, _ = make_key(name="crawler 2", sources=["truyện"])
    assert journal_of(conn, "api_key.created") == [
        (
            key_id,
            f"API key {key_id} (crawler 1) was created by a test.",
            '{"operator":"a test","permissions":["ingest:stories"]}',
        ),
        (
            restricted,
            f"API key {restricted} (crawler 2) was created by a test.",
            '{"operator":"a test","permissions":["ingest:stories"],"sources":["truyện"]}',
        ),
    ]


def test_another_master_key_is_told_apart_clearly(conn: Connection, make_key: KeyFactory) -> None:
    key_id, _ = make_key()
    with pytest.raises(Problem) as problem:
        api_keys.check_secret(found(conn), ANOTHER_MASTER_KEY)
    assert str(problem.value) == (
        f"API key {key_id} was made under another master key. Set NOVEL_MASTER_KEY to the one it was made with."
    )
    assert problem.value.__suppress_context__  # no traceback of a library above it


@pytest.mark.parametrize("damage", [lambda hashed: hashed[:-5], lambda hashed: "", lambda hashed: "$P$B12345"])
def test_a_damaged_hash_is_a_problem_too(conn: Connection, make_key: KeyFactory, damage: Callable[[str], str]) -> None:
    make_key()
    key = found(conn)
    with pytest.raises(Problem, match="another master key"):
        api_keys.check_secret(replace(key, secret_hash=damage(key.secret_hash)), MASTER_KEY)


def test_a_secret_of_one_version_does_not_pass_for_the_next(conn: Connection, make_key: KeyFactory) -> None:
    make_key()
    key = found(conn)
    with pytest.raises(Problem):
        api_keys.check_secret(replace(key, key_id=key.key_id.removesuffix(".1") + ".2"), MASTER_KEY)


def test_an_unknown_or_revoked_key_is_not_found(conn: Connection, make_key: KeyFactory) -> None:
    assert api_keys.active(conn, name="crawler") == []
    key_id, _ = make_key()
    assert api_keys.active(conn, name="crawler 2") == []
    conn.execute("UPDATE wp_novel_api_keys SET is_active = 0 WHERE key_id = %s", (key_id,))
    assert api_keys.active(conn, name="crawler") == []


def test_of_two_keys_with_one_name_the_newest_active_one_is_found(conn: Connection, make_key: KeyFactory) -> None:
    older, _ = make_key()
    newer, _ = make_key()
    assert found(conn).key_id == newer
    conn.execute("UPDATE wp_novel_api_keys SET is_active = 0 WHERE key_id = %s", (newer,))
    assert found(conn).key_id == older


def test_a_key_that_cannot_be_written_down_is_not_made(conn: Connection, make_key: KeyFactory) -> None:
    conn.execute("ALTER TABLE wp_novel_sync_logs RENAME TO wp_novel_sync_logs_away")
    try:
        with pytest.raises(Exception, match="wp_novel_sync_logs"):
            make_key()
    finally:
        conn.execute("ALTER TABLE wp_novel_sync_logs_away RENAME TO wp_novel_sync_logs")
    assert api_keys.active(conn, name="crawler") == []


def test_keys_made_at_the_same_moment_are_all_there(test_settings: Settings, conn: Connection) -> None:
    together = Barrier(8)

    def make(number: int) -> tuple[str, str]:
        with connection.connect(test_settings.database) as own:
            together.wait(30)
            return api_keys.create(
                own, name="crawler", permissions=("ingest:stories",), master_key=MASTER_KEY, operator=f"test {number}"
            )

    with ThreadPoolExecutor(8) as threads:
        made = dict(threads.map(make, range(8)))
    assert {row[0] for row in conn.fetch_all("SELECT key_id FROM wp_novel_api_keys")} == set(made)
    assert len(set(made.values())) == 8
    assert len(conn.fetch_all("SELECT id FROM wp_novel_sync_logs WHERE event_type = 'api_key.created'")) == 8


@pytest.mark.parametrize(("sources", "read"), [((), None), (("b", "a", "Ấ"), ("b", "a", "Ấ"))])
def test_a_key_is_listed_with_what_it_may_push(
    conn: Connection, make_key: KeyFactory, sources: tuple[str, ...], read: tuple[str, ...] | None
) -> None:
    key_id, _ = make_key(sources=sources)
    key = listed(conn)[key_id]
    assert (key.name, key.permissions, key.sources, key.state) == ("crawler", ("ingest:stories",), read, State.ACTIVE)
    assert (key.last_used_at, key.expires_at, key.locked_until, key.revoked_at) == (None, None, None, None)


def test_keys_are_listed_in_the_order_they_were_made_also_those_that_are_over(
    conn: Connection, make_key: KeyFactory
) -> None:
    made = [make_key()[0] for _ in range(4)]
    set_terms(conn, made[0], expires_at=-1)
    set_terms(conn, made[1], locked_until=1)
    api_keys.revoke(conn, made[2], operator="a test")
    states = [State.EXPIRED, State.LOCKED, State.REVOKED, State.ACTIVE]
    assert [(key.key_id, key.state) for key in api_keys.every(conn)] == list(zip(made, states, strict=True))


def test_a_key_from_before_there_were_terms_has_no_bounds(conn: Connection, make_key: KeyFactory) -> None:
    key_id, _ = make_key()
    forget_terms(conn, key_id)
    key = listed(conn)[key_id]
    assert (key.sources, key.state, key.expires_at) == (None, State.ACTIVE, None)
    assert found(conn).key_id == key_id
    assert rotate(conn, key_id).replaced.expires_at is not None
    api_keys.revoke(conn, key_id, operator="a test")
    assert listed(conn)[key_id].revoked_at is not None


def test_an_expired_key_is_not_active_and_one_in_its_overlap_is(conn: Connection, make_key: KeyFactory) -> None:
    key_id, _ = make_key()
    set_terms(conn, key_id, expires_at=1)
    assert found(conn).key_id == key_id
    set_terms(conn, key_id, expires_at=0)
    assert api_keys.active(conn, name="crawler") == []


NOON = datetime(2026, 7, 31, 12)
SOON, JUST_NOW = NOON + timedelta(seconds=1), NOON - timedelta(seconds=1)


@pytest.mark.parametrize(
    ("is_active", "expires_at", "locked_until", "state"),
    [
        (True, None, None, State.ACTIVE),
        (True, SOON, None, State.ACTIVE),
        (True, NOON, None, State.EXPIRED),
        (True, SOON, SOON, State.LOCKED),
        (True, None, NOON, State.ACTIVE),
        (True, JUST_NOW, SOON, State.EXPIRED),
        (False, JUST_NOW, SOON, State.REVOKED),
        (False, None, None, State.REVOKED),
    ],
)
def test_the_state_of_a_key(
    is_active: bool, expires_at: datetime | None, locked_until: datetime | None, state: State
) -> None:
    read = api_keys.state_of(is_active=is_active, expires_at=expires_at, locked_until=locked_until, now=NOON)
    assert read is state


@pytest.mark.parametrize("written", ["a, b", "{}", "[1]", '"a"', "", "null"])
def test_a_key_with_unreadable_sources_may_push_none_but_can_be_listed_and_revoked(
    conn: Connection, make_key: KeyFactory, written: str
) -> None:
    key_id, _ = make_key()
    conn.execute("UPDATE wp_novel_api_key_terms SET sources = %s WHERE key_id = %s", (written, key_id))
    assert listed(conn)[key_id].sources == ()
    api_keys.revoke(conn, key_id, operator="a test")
    assert listed(conn)[key_id].state is State.REVOKED


def test_a_revoked_key_is_over_at_once_and_once(conn: Connection, make_key: KeyFactory) -> None:
    key_id, _ = make_key()
    assert api_keys.revoke(conn, key_id, operator="Lan").state is State.ACTIVE
    revoked = listed(conn)[key_id]
    assert revoked.state is State.REVOKED
    assert revoked.revoked_at is not None
    assert api_keys.active(conn, name="crawler") == []
    set_terms(conn, key_id, revoked_at=-5)
    before = listed(conn)[key_id]
    assert api_keys.revoke(conn, key_id, operator="Minh") == before == listed(conn)[key_id]
    assert journal_of(conn, "api_key.revoked") == [
        (key_id, f"API key {key_id} (crawler) was revoked by Lan.", '{"operator":"Lan"}')
    ]


def test_a_locked_key_is_unlocked_and_others_stay_locked(conn: Connection, make_key: KeyFactory) -> None:
    key_id, other = make_key()[0], make_key()[0]
    for each in (key_id, other):
        set_terms(conn, each, locked_until=1)
    was = api_keys.unlock(conn, key_id, operator="Lan")
    assert was.state is State.LOCKED
    assert [key.state for key in api_keys.every(conn)] == [State.ACTIVE, State.LOCKED]
    ((reference, message, context),) = journal_of(conn, "api_key.unlocked")
    assert (reference, message) == (key_id, f"API key {key_id} (crawler) was unlocked by Lan.")
    assert context == f'{{"operator":"Lan","locked_until":"{was.locked_until:%Y-%m-%dT%H:%M:%SZ}"}}'


def test_unlocking_a_key_that_is_not_locked_is_nothing(conn: Connection, make_key: KeyFactory) -> None:
    key_id, _ = make_key()
    assert api_keys.unlock(conn, key_id, operator="a test").state is State.ACTIVE
    set_terms(conn, key_id, locked_until=-1)
    assert api_keys.unlock(conn, key_id, operator="a test").state is State.ACTIVE
    assert journal_of(conn, "api_key.unlocked") == []


def test_a_key_that_is_over_cannot_be_unlocked(conn: Connection, make_key: KeyFactory) -> None:
    key_id, _ = make_key()
    set_terms(conn, key_id, locked_until=1, expires_at=-1)
    line = refusal(conn, lambda: api_keys.unlock(conn, key_id, operator="a test"))
    assert line == (
        f"API key {key_id} is expired: unlocking cannot bring it back. Make a new one with: novel keys create"
    )


@pytest.mark.parametrize("key_id", ["nk_absent.1", "nk_absent", "%", "nk_"])
def test_what_is_not_there_is_said_so(conn: Connection, make_key: KeyFactory, key_id: str) -> None:
    make_key()
    acts: list[Callable[[], object]] = [
        lambda: api_keys.revoke(conn, key_id, operator="a test"),
        lambda: api_keys.unlock(conn, key_id, operator="a test"),
        lambda: rotate(conn, key_id),
    ]
    for act in acts:
        assert refusal(conn, act) == (f"there is no API key {key_id}. See which there are with: novel keys list --all")


def test_keys_live_under_the_table_prefix(empty_settings: Settings) -> None:
    with connection.connect(replace(empty_settings.database, table_prefix="blog7_")) as conn:
        migrator.migrate(conn, lock_seconds=10)
        key_id, secret = api_keys.create(
            conn, name="crawler", permissions=("ingest:stats",), master_key=MASTER_KEY, operator="a test"
        )
        assert conn.fetch_all("SELECT key_id FROM blog7_novel_api_keys") == [(key_id,)]
        assert api_keys.check_secret(found(conn), MASTER_KEY) == secret
        rotated = rotate(conn, key_id)
        assert conn.fetch_all("SELECT key_id FROM blog7_novel_api_key_terms ORDER BY key_id") == [
            (key_id,),
            (rotated.key_id,),
        ]
