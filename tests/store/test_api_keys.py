from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import argon2
import pytest

from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, migrator
from schema.connection import Connection
from store import api_keys
from store.api_keys import ApiKey

MASTER_KEY = "a master key for tests, long enough"
ANOTHER_MASTER_KEY = "another master key, as long as that"

KeyFactory = Callable[..., tuple[str, str]]


@pytest.fixture
def make_key(conn: Connection) -> KeyFactory:
    def make(*, name: str = "crawler", permissions: tuple[str, ...] = ("ingest:stories",)) -> tuple[str, str]:
        return api_keys.create(conn, name=name, permissions=permissions, master_key=MASTER_KEY, operator="a test")

    return make


def found(conn: Connection, name: str = "crawler") -> ApiKey:
    key = next(iter(api_keys.active(conn, name=name)), None)
    assert key is not None
    return key


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
    (row,) = conn.fetch_all(
        "SELECT reference_id, message, context_json FROM wp_novel_sync_logs WHERE event_type = 'api_key.created'"
    )
    assert row == (
        key_id,
        f"API key {key_id} (crawler 1) was created by a test.",
        '{"operator":"a test","permissions":["ingest:stories"]}',
    )


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


def test_keys_live_under_the_table_prefix(empty_settings: Settings) -> None:
    with connection.connect(replace(empty_settings.database, table_prefix="blog7_")) as conn:
        migrator.migrate(conn, lock_seconds=10)
        key_id, secret = api_keys.create(
            conn, name="crawler", permissions=("ingest:stats",), master_key=MASTER_KEY, operator="a test"
        )
        assert conn.fetch_all("SELECT key_id FROM blog7_novel_api_keys") == [(key_id,)]
        assert api_keys.check_secret(found(conn), MASTER_KEY) == secret
