"""Keys as the door sees them: found by their exact id, with what they may do right now."""

import json
from collections.abc import Callable

import pytest

from schema.connection import Connection as PlainConnection
from store import api_keys, key_ring
from store.connection import Connection
from store.key_ring import Key
from store.pool import Pool

MASTER_KEY = "a master key for tests, long enough"

MakeKey = Callable[..., str]


@pytest.fixture
def make_key(conn: PlainConnection) -> MakeKey:
    def make(*permissions: str, sources: tuple[str, ...] | None = None) -> str:
        key_id, _ = api_keys.create(
            conn,
            name="crawler",
            permissions=permissions or api_keys.PERMISSIONS,
            sources=sources,
            master_key=MASTER_KEY,
            operator="test",
        )
        return key_id

    return make


async def find(pool: Pool, key_id: str) -> Key | None:
    async with pool.reading() as conn:
        return await key_ring.find(conn, key_id)


async def found(pool: Pool, key_id: str) -> Key:
    key = await find(pool, key_id)
    assert key is not None
    return key


def set_terms(conn: PlainConnection, column: str, seconds: int) -> None:
    conn.execute(f"UPDATE wp_novel_api_key_terms SET {column} = UTC_TIMESTAMP() + INTERVAL %s SECOND", (seconds,))


async def test_a_key_is_found_with_what_it_may_do(pool: Pool, make_key: MakeKey) -> None:
    key = await found(pool, make_key("ingest:stories", "ingest:chapters", sources=("truyện-a", "b")))
    assert key.permissions == {"ingest:stories", "ingest:chapters"}
    assert key.sources == frozenset({"truyện-a", "b"})
    assert (key.is_active, key.locked_seconds) == (True, 0)
    assert key.secret_hash.startswith("$argon2id$")


async def test_a_key_is_found_only_by_its_exact_id(pool: Pool, make_key: MakeKey) -> None:
    key_id = make_key()
    for other in (key_id.upper(), key_id + " ", key_id.removesuffix(".1"), key_id.removesuffix("1") + "2", "", "%"):
        assert await find(pool, other) is None, other


async def test_a_key_without_sources_may_use_any_and_others_only_theirs(pool: Pool, make_key: MakeKey) -> None:
    assert (await found(pool, make_key())).may_use("whatever")
    key = await found(pool, make_key(sources=("a",)))
    assert [key.may_use(source) for source in ("a", "A", "a ", "b", "")] == [True, False, False, False, False]


async def test_a_key_from_before_there_were_terms_is_active_for_all_sources(
    pool: Pool, conn: PlainConnection, make_key: MakeKey
) -> None:
    key_id = make_key()
    conn.execute("DELETE FROM wp_novel_api_key_terms")
    key = await found(pool, key_id)
    assert (key.is_active, key.sources, key.locked_seconds) == (True, None, 0)


async def test_sources_that_cannot_be_read_are_none_at_all(
    pool: Pool, conn: PlainConnection, make_key: MakeKey
) -> None:
    key_id = make_key(sources=("a",))
    for text in ("", "a,b", '"a"', "{}", "[1]"):
        conn.execute("UPDATE wp_novel_api_key_terms SET sources = %s", (text,))
        assert (await found(pool, key_id)).sources == frozenset(), text


async def test_a_revoked_key_is_found_and_not_active(pool: Pool, conn: PlainConnection, make_key: MakeKey) -> None:
    key_id = make_key()
    api_keys.revoke(conn, key_id, operator="test")
    assert not (await found(pool, key_id)).is_active


@pytest.mark.parametrize(("seconds", "is_active"), [(3600, True), (0, False), (-3600, False)])
async def test_a_key_is_active_until_it_expires(
    pool: Pool, conn: PlainConnection, make_key: MakeKey, seconds: int, is_active: bool
) -> None:
    key_id = make_key()
    set_terms(conn, "expires_at", seconds)
    assert (await found(pool, key_id)).is_active is is_active


async def test_a_key_knows_how_long_it_is_still_locked(pool: Pool, conn: PlainConnection, make_key: MakeKey) -> None:
    key_id = make_key()
    set_terms(conn, "locked_until", 900)
    key = await found(pool, key_id)
    assert 890 < key.locked_seconds <= 900
    assert key.is_active
    set_terms(conn, "locked_until", -1)
    assert (await found(pool, key_id)).locked_seconds == 0


@pytest.mark.parametrize(("key_id", "family"), [("nk_a.1", "nk_a"), ("nk_a.12", "nk_a"), ("nk_a", "nk_a")])
def test_versions_of_a_key_are_one_family(key_id: str, family: str) -> None:
    key = Key(key_id, "", frozenset(), None, is_active=True, locked_seconds=0, last_lock=0)
    assert key.family == family


async def lock(pool: Pool, key_id: str, *, seconds: int = 900) -> bool:
    async def work(conn: Connection) -> bool:
        return await key_ring.lock(conn, key_id, seconds=seconds, failures=5)

    return await pool.transaction(work)


def journal(conn: PlainConnection) -> list[tuple[str, str, str]]:
    rows = conn.fetch_all(
        "SELECT level, reference_id, context_json FROM wp_novel_sync_logs WHERE event_type = 'api_key.locked'"
    )
    return [(level, reference, context) for level, reference, context in rows]


@pytest.mark.parametrize("has_terms", [True, False])
async def test_a_lock_is_set_and_journalled(
    pool: Pool, conn: PlainConnection, make_key: MakeKey, has_terms: bool
) -> None:
    key_id, other = make_key(sources=("a",)), make_key()
    if not has_terms:
        conn.execute("DELETE FROM wp_novel_api_key_terms WHERE key_id = %s", (key_id,))
    assert await lock(pool, key_id)
    key = await found(pool, key_id)
    assert 890 < key.locked_seconds <= 900
    assert key.sources == (frozenset({"a"}) if has_terms else None)
    assert (await found(pool, other)).locked_seconds == 0
    [(level, reference, context)] = journal(conn)
    assert (level, reference, json.loads(context)) == ("warning", key_id, {"seconds": 900, "failures": 5})


async def test_a_lock_of_a_key_that_is_locked_already_is_not_journalled_again(
    pool: Pool, conn: PlainConnection, make_key: MakeKey
) -> None:
    """Requests that were under way when it was locked lock it again, perhaps a second later."""
    key_id = make_key()
    assert await lock(pool, key_id)
    assert not await lock(pool, key_id, seconds=905)
    assert len(journal(conn)) == 1
    set_terms(conn, "locked_until", -1)
    assert await lock(pool, key_id)
    assert len(journal(conn)) == 2


async def test_a_key_that_does_not_exist_is_not_locked_and_leaves_nothing(pool: Pool, conn: PlainConnection) -> None:
    assert not await lock(pool, "nk_0.1")
    assert journal(conn) == []
    assert conn.fetch_all("SELECT key_id FROM wp_novel_api_key_terms") == []


async def test_the_use_of_a_key_is_noted_no_more_often_than_asked(
    pool: Pool, conn: PlainConnection, make_key: MakeKey
) -> None:
    key_id, other = make_key(), make_key()

    async def age_after_touch(seconds_ago: int | None) -> int:
        """How long ago the key was used, by its row, after a touch that finds it as it was so long ago."""
        ago = "NULL" if seconds_ago is None else f"UTC_TIMESTAMP() - INTERVAL {seconds_ago} SECOND"
        conn.execute(f"UPDATE wp_novel_api_keys SET last_used_at = {ago} WHERE key_id = %s", (key_id,))
        async with pool.reading() as reading:
            await key_ring.touch(reading, key_id, every_seconds=60)
        sql = "SELECT TIMESTAMPDIFF(SECOND, last_used_at, UTC_TIMESTAMP()) FROM wp_novel_api_keys WHERE key_id = %s"
        return int(conn.fetch_all(sql, (key_id,))[0][0])

    assert await age_after_touch(None) < 10
    assert 30 <= await age_after_touch(30) < 60
    assert await age_after_touch(61) < 10
    assert conn.fetch_all("SELECT last_used_at FROM wp_novel_api_keys WHERE key_id = %s", (other,)) == [(None,)]
