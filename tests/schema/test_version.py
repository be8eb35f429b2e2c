import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.settings import Settings
from schema import migrations, migrator, version
from schema.connection import Connection
from store import pool as pools
from store import schema_version

NEWEST = migrations.latest()


@pytest.mark.parametrize("there", range(NEWEST))
def test_every_older_version_is_refused_with_the_command_that_mends_it(there: int) -> None:
    with pytest.raises(version.SchemaOutdated) as problem:
        version.require(there, place="db.example/novel")
    text = str(problem.value)
    assert text.startswith("the database db.example/novel is ")
    assert ("without our tables" if there == 0 else f"at schema version {there};") in text
    assert text.endswith(f"this program needs version {NEWEST}. Run: novel migrate")
    assert problem.value.exit_code == 1


@pytest.mark.parametrize("there", [NEWEST, NEWEST + 1])
def test_services_accept_the_newest_and_a_newer_version(there: int) -> None:
    """During a rolling upgrade the old program goes on for a while."""
    version.require(there, place="x")


def test_migrating_and_checking_refuse_a_version_they_do_not_know() -> None:
    version.require_known(NEWEST, place="x")
    version.require_known(0, place="x")
    with pytest.raises(
        version.SchemaNewer, match=f"^the database x is at schema version {NEWEST + 1}, made by a newer"
    ):
        version.require_known(NEWEST + 1, place="x")


def test_a_database_without_options_is_at_version_zero(empty_conn: Connection) -> None:
    assert version.current(empty_conn) == 0


def test_a_wordpress_without_us_is_at_version_zero(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=1)
    empty_conn.execute("DELETE FROM wp_options")
    assert version.current(empty_conn) == 0


def test_a_version_is_recorded_once_and_forgotten(empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=5, to=1)
    for number in (2, 12, 12):
        version.record(empty_conn, number)
        assert version.current(empty_conn) == number
    assert empty_conn.fetch_one("SELECT COUNT(*) FROM wp_options") == (1,)
    version.forget(empty_conn)
    assert version.current(empty_conn) == 0
    assert empty_conn.fetch_one("SELECT COUNT(*) FROM wp_options") == (0,)


@given(st.integers(min_value=0, max_value=10**9))
def test_a_recorded_version_is_read_back(number: int) -> None:
    assert version.parse(str(number)) == number


@example("²")  # a digit that is no number
@example("-1")
@example("1 ")
@given(st.none() | st.text().filter(lambda text: not text.isdecimal()))
def test_what_is_no_number_is_version_zero(text: str | None) -> None:
    assert version.parse(text) == 0


async def test_a_service_sees_the_same_version_through_its_pool(
    empty_settings: Settings, empty_conn: Connection
) -> None:
    pool = pools.from_settings(empty_settings.database)
    try:
        assert await schema_version.current(pool) == 0
        for number in (1, NEWEST - 1):
            migrator.migrate(empty_conn, lock_seconds=5, to=number)
            assert await schema_version.current(pool) == number
            with pytest.raises(version.SchemaOutdated, match=r"Run: novel migrate$"):
                await schema_version.require(pool)
        migrator.migrate(empty_conn, lock_seconds=5)
        await schema_version.require(pool)
    finally:
        await pool.close()
