import contextlib
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime import ports, settings
from runtime.settings import Settings
from schema import migrations, migrator, version
from schema.connection import Connection
from store import doctor
from store.doctor import Finding, ServerFacts, Verdict
from tests.conftest import DatabaseServer

GOOD, DOUBTFUL, BROKEN = Verdict.GOOD, Verdict.DOUBTFUL, Verdict.BROKEN

HEALTHY = ServerFacts(
    max_packet_bytes=256 << 20,
    server_time_zone="SYSTEM",
    session_time_zone="+00:00",
    is_read_only=False,
    flush_at_commit=1,
    data_directory="/var/lib/mysql/",
    skew_seconds=0.0,
    isolation="READ-COMMITTED",
)


def examined(of: Settings) -> dict[str, Finding]:
    findings = list(doctor.examine(of))
    by_subject = {finding.subject: finding for finding in findings}
    assert len(by_subject) == len(findings)
    return by_subject


def judged(facts: ServerFacts) -> dict[str, Finding]:
    return {finding.subject: finding for finding in doctor.judge_server(facts)}


Changed = Callable[[str, object], contextlib.AbstractContextManager[None]]


@pytest.fixture
def changed(database_server: DatabaseServer) -> Changed:
    """Gives a variable of the server another value for the length of a block."""

    @contextlib.contextmanager
    def change(variable: str, value: object) -> Iterator[None]:
        with contextlib.closing(database_server.as_root()) as root, root.cursor() as cursor:
            cursor.execute(f"SELECT @@global.{variable}")
            ((before,),) = cursor.fetchall()
            cursor.execute(f"SET GLOBAL {variable} = %s", (value,))
            try:
                yield
            finally:
                cursor.execute(f"SET GLOBAL {variable} = %s", (before,))

    return change


# -- judgements, without a server ------------------------------------------------------------------------


def test_a_healthy_server_is_good_in_every_respect() -> None:
    assert {subject: finding.verdict for subject, finding in judged(HEALTHY).items()} == dict.fromkeys(
        ("isolation", "time zone", "max_allowed_packet", "writable", "durability", "clock"), GOOD
    )


@pytest.mark.parametrize(
    ("facts", "subject", "verdict", "text"),
    [
        (replace(HEALTHY, isolation="REPEATABLE-READ"), "isolation", BROKEN, "REPEATABLE-READ on our connections"),
        (replace(HEALTHY, session_time_zone="+07:00"), "time zone", BROKEN, "+07:00 on our connections"),
        (replace(HEALTHY, session_time_zone="SYSTEM"), "time zone", BROKEN, "SYSTEM on our connections"),
        (replace(HEALTHY, max_packet_bytes=16 << 20), "max_allowed_packet", GOOD, "16 MiB"),
        (replace(HEALTHY, max_packet_bytes=(16 << 20) - 1), "max_allowed_packet", DOUBTFUL, "needs 16 MiB"),
        (replace(HEALTHY, is_read_only=True), "writable", BROKEN, "the server is read-only"),
        (replace(HEALTHY, flush_at_commit=0), "durability", DOUBTFUL, "innodb_flush_log_at_trx_commit = 0"),
        (replace(HEALTHY, flush_at_commit=2), "durability", DOUBTFUL, "can be lost in a crash"),
        (replace(HEALTHY, skew_seconds=2.0), "clock", GOOD, "2.0 s between this machine and the database"),
        (replace(HEALTHY, skew_seconds=2.1), "clock", DOUBTFUL, "run NTP on both"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_else(facts: ServerFacts, subject: str, verdict: Verdict, text: str) -> None:
    findings = judged(facts)
    assert findings[subject].verdict is verdict
    assert text in findings[subject].text
    assert {name for name, finding in findings.items() if finding.verdict is not GOOD} <= {subject}


@pytest.mark.parametrize(
    ("free_bytes", "verdict", "text"),
    [
        (100 << 30, GOOD, "100.0 GiB free, 0 % used"),
        (21 << 30, GOOD, "21.0 GiB free, 79 % used"),
        (20 << 30, DOUBTFUL, "20.0 GiB free, 80 % used"),
        (11 << 30, DOUBTFUL, "11.0 GiB free, 89 % used"),
        (10 << 30, BROKEN, "10.0 GiB free, 90 % used"),
        (0, BROKEN, "0.0 GiB free, 100 % used"),
    ],
)
def test_a_disk_is_judged_by_how_full_it_is(free_bytes: int, verdict: Verdict, text: str) -> None:
    assert doctor.judge_disk("disk", free_bytes, 100 << 30) == Finding(verdict, "disk", text)


def test_a_disk_of_no_size_is_full() -> None:
    assert doctor.judge_disk("disk", 0, 0).verdict is BROKEN


# -- findings, on a real server --------------------------------------------------------------------------


def test_on_servers_of_ours_all_is_well(test_settings: Settings, conn: Connection) -> None:
    findings = examined(test_settings)
    del findings["disk"]  # as full as the machine's is
    assert {subject: finding.verdict for subject, finding in findings.items()} == dict.fromkeys(
        (
            *("database", "isolation", "time zone", "max_allowed_packet", "writable", "durability", "clock"),
            *("collation", "schema", "full-text", "redis"),
        ),
        GOOD,
    )
    assert findings["database"].text == f"{conn.dialect.name} at {conn.address.place}"
    assert findings["schema"].text == f"version {migrations.latest()} of {migrations.latest()}"
    assert findings["collation"].text == "utf8mb4_unicode_520_ci, đ = d"
    assert findings["redis"].text.startswith("Redis ")


def test_the_disk_is_the_one_that_the_data_is_on(
    test_settings: Settings, database_server: DatabaseServer, conn: Connection
) -> None:
    if database_server.private is None:
        pytest.skip("the data is on another machine")
    ((directory,),) = conn.fetch_all("SELECT @@datadir")
    assert Path(directory) == database_server.private.directory / "data"
    before, disk, after = judged_disk(directory), examined(test_settings)["disk"], judged_disk(directory)
    assert percent_used(before) <= percent_used(disk) <= percent_used(after) or disk in (before, after)


@pytest.mark.parametrize(
    ("host", "directory"), [("db.example", "/"), ("127.0.0.1", "/no/such/folder"), ("127.0.0.1", "/dev/null/x")]
)
def test_a_disk_that_cannot_be_seen_is_doubtful(host: str, directory: str) -> None:
    finding = doctor.examine_disk(host, directory)
    assert finding == Finding(DOUBTFUL, "disk", "the database's disk cannot be seen from here: watch it there")


def test_a_newer_schema_is_doubtful_and_not_compared(empty_settings: Settings, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    version.record(empty_conn, migrations.latest() + 1)
    schema = examined(empty_settings)["schema"]
    assert schema.verdict is DOUBTFUL
    assert "made by a newer program" in schema.text


def judged_disk(directory: str) -> Finding:
    usage = shutil.disk_usage(directory)
    return doctor.judge_disk("disk", usage.free, usage.total)


def percent_used(disk: Finding) -> int:
    return int(disk.text.split()[-3])


@pytest.mark.parametrize(
    ("variable", "value", "subject", "text"),
    [
        ("time_zone", "+07:00", "time zone", "+00:00 on our connections (server: +07:00)"),
        ("tx_isolation", "REPEATABLE-READ", "isolation", "READ-COMMITTED on our connections"),
        ("sql_mode", "", "collation", "utf8mb4_unicode_520_ci, đ = d"),
        ("collation_server", "latin1_swedish_ci", "collation", "utf8mb4_unicode_520_ci, đ = d"),
    ],
)
def test_our_connections_do_not_follow_the_servers_defaults(
    test_settings: Settings, changed: Changed, variable: str, value: str, subject: str, text: str
) -> None:
    with changed(variable, value):
        assert examined(test_settings)[subject] == Finding(GOOD, subject, text)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "max_allowed_packet",
            8 << 20,
            Finding(
                DOUBTFUL,
                "max_allowed_packet",
                "8 MiB; a full batch needs 16 MiB: SET GLOBAL max_allowed_packet = 16777216;",
            ),
        ),
        (
            "read_only",
            1,
            Finding(BROKEN, "writable", "no: the server is read-only; use the primary, or SET GLOBAL read_only = 0;"),
        ),
        (
            "innodb_flush_log_at_trx_commit",
            2,
            Finding(
                DOUBTFUL,
                "durability",
                "innodb_flush_log_at_trx_commit = 2; an accepted batch can be lost in a crash unless it is 1",
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_setting_of_the_server_that_hurts_is_found(
    test_settings: Settings, changed: Changed, variable: str, value: int, expected: Finding
) -> None:
    with changed(variable, value):
        findings = examined(test_settings)
    assert findings.pop(expected.subject) == expected
    findings.pop("disk", None)
    assert {finding.verdict for finding in findings.values()} == {GOOD}
    assert examined(test_settings)[expected.subject].verdict is GOOD


@pytest.mark.parametrize("offset_seconds", [3600, -3600])
def test_a_clock_that_is_off_is_found(test_settings: Settings, changed: Changed, offset_seconds: int) -> None:
    with changed("init_connect", f"SET timestamp = UNIX_TIMESTAMP() + ({offset_seconds})"):
        clock = examined(test_settings)["clock"]
    assert clock.verdict is DOUBTFUL
    seconds, _, advice = clock.text.partition(" s between this machine and the database; ")
    assert 3000 < float(seconds) < 4200
    assert advice == "run NTP on both"


def test_an_outdated_schema_is_found_with_its_remedy(empty_conn: Connection, empty_settings: Settings) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    version.record(empty_conn, migrations.latest() - 1)
    schema = examined(empty_settings)["schema"]
    assert schema.verdict is BROKEN
    assert schema.text.endswith("Run: novel migrate")


def test_an_empty_database_is_found_with_its_remedy(empty_settings: Settings) -> None:
    schema = examined(empty_settings)["schema"]
    assert schema.verdict is BROKEN
    assert "without our tables" in schema.text
    assert schema.text.endswith("Run: novel migrate")


def test_drift_is_counted_and_its_first_line_shown(empty_conn: Connection, empty_settings: Settings) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    empty_conn.execute("ALTER TABLE wp_novel_stories ADD x INT, ADD y INT")
    findings = examined(empty_settings)
    assert findings["schema"] == Finding(
        DOUBTFUL,
        "schema",
        f"version {migrations.latest()} of {migrations.latest()}; 2 differences, the first:"
        " wp_novel_stories.x: column is not declared. Run: novel schema check",
    )
    assert findings["full-text"].verdict is GOOD


def test_a_missing_full_text_index_is_found(empty_conn: Connection, empty_settings: Settings) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    ((name,), *_) = empty_conn.fetch_all(
        "SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()"
        " AND TABLE_NAME = 'wp_novel_stories' AND INDEX_TYPE = 'FULLTEXT'"
    )
    empty_conn.execute(f"ALTER TABLE wp_novel_stories DROP INDEX `{name}`")
    assert examined(empty_settings)["full-text"] == Finding(BROKEN, "full-text", "1 of 2 indexes on stories")


def test_under_another_prefix_its_own_tables_are_examined(empty_settings: Settings, empty_conn: Connection) -> None:
    migrator.migrate(empty_conn, lock_seconds=10)
    other = replace(empty_settings, database=replace(empty_settings.database, table_prefix="blog7_"))
    assert examined(other)["schema"].verdict is BROKEN
    assert examined(empty_settings)["schema"].verdict is GOOD


# -- what is away or not set -----------------------------------------------------------------------------


def test_without_a_database_the_rest_is_still_examined(environ: dict[str, str]) -> None:
    port = ports.find()
    findings = examined(settings.load(environ | {"NOVEL_DATABASE_URL": f"mysql://u:hush@127.0.0.1:{port}/novel"}))
    assert findings == {
        "database": Finding(
            BROKEN,
            "database",
            f"no database server answers at 127.0.0.1:{port}. Start it, or correct NOVEL_DATABASE_URL.",
        ),
        "redis": findings["redis"],
    }
    assert findings["redis"].verdict is GOOD


def test_a_database_that_is_not_set_is_broken() -> None:
    database = examined(settings.load({}))["database"]
    assert database.verdict is BROKEN
    assert "NOVEL_DATABASE_URL is not set" in database.text


def test_a_redis_that_is_not_configured_is_doubtful(environ: dict[str, str]) -> None:
    assert examined(settings.load(environ | {"NOVEL_REDIS_URL": ""}))["redis"] == Finding(
        DOUBTFUL, "redis", "not configured: nonces, limits and caches use the database"
    )


def test_a_redis_that_is_down_is_broken(environ: dict[str, str]) -> None:
    port = ports.find()
    findings = examined(settings.load(environ | {"NOVEL_REDIS_URL": f"redis://:hush@127.0.0.1:{port}/0"}))
    assert findings["redis"] == Finding(
        BROKEN, "redis", f"no answer from 127.0.0.1:{port} (ConnectionError): check NOVEL_REDIS_URL"
    )


def test_a_redis_that_says_nothing_is_broken(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        redis = examined(settings.load(environ | {"NOVEL_REDIS_URL": url}))["redis"]
    assert redis.verdict is BROKEN
    assert "(TimeoutError)" in redis.text


def test_a_wrong_redis_password_is_broken_and_not_repeated(environ: dict[str, str], redis_url: str) -> None:
    place = redis_url.rpartition("@")[2]
    redis = examined(settings.load(environ | {"NOVEL_REDIS_URL": f"redis://:hush@{place}"}))["redis"]
    assert redis.verdict is BROKEN
    assert redis.text.endswith("refuses the password in NOVEL_REDIS_URL")
    assert "hush" not in redis.text


def test_settings_are_examined_too(environ: dict[str, str]) -> None:
    del environ["NOVEL_MASTER_KEY"]
    environ["NOVEL_TABEL_PREFIX"] = "x"
    findings = [finding for finding in doctor.examine(settings.load(environ)) if finding.subject == "settings"]
    assert [(finding.verdict, finding.text) for finding in findings] == [
        (DOUBTFUL, "unknown variable NOVEL_TABEL_PREFIX (did you mean NOVEL_TABLE_PREFIX?)"),
        (DOUBTFUL, "NOVEL_MASTER_KEY is not set: API keys cannot be made or checked"),
    ]


def test_no_finding_shows_a_secret(test_settings: Settings, environ: dict[str, str]) -> None:
    assert test_settings.database.address is not None
    shown = repr(list(doctor.examine(test_settings)))
    assert test_settings.database.address.password not in shown
    assert environ["NOVEL_MASTER_KEY"] not in shown
    assert environ["NOVEL_REDIS_URL"].partition("@")[0].rpartition(":")[2] not in shown
