"""`novel doctor`: looks at everything the service stands on and says what is fine, doubtful or broken.

Facts are read first, judged afterwards by pure functions, so that each judgement is tested without a server.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import redis as redis_client

from runtime.problems import Problem
from runtime.settings import Settings
from schema import connection, drift, migrations, version
from schema.dialect import TEXT_COLLATION

_FACTS = """
    SELECT @@max_allowed_packet, @@global.time_zone, @@session.time_zone, @@read_only,
           @@innodb_flush_log_at_trx_commit, @@datadir, UNIX_TIMESTAMP(NOW(6))
"""
_ISOLATION_MARIADB = "SELECT @@session.tx_isolation"
_ISOLATION_MYSQL = "SELECT @@session.transaction_isolation"
_COLLATIONS = """
    SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN (%s, %s)
"""
# đ and ấ must fold to their base letters, and Abc must stay apart from abc.
_FOLDING = f"SELECT _utf8mb4'đấ' COLLATE {TEXT_COLLATION} = _utf8mb4'da' COLLATE {TEXT_COLLATION}"
_FULLTEXT = """
    SELECT COUNT(DISTINCT INDEX_NAME) FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND INDEX_TYPE = 'FULLTEXT'
"""

# The largest value is a whole request, 12 MB at most.
MIN_PACKET_BYTES = 16 << 20
MAX_SKEW_SECONDS = 2.0
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


class Verdict(Enum):
    GOOD = "good"
    DOUBTFUL = "doubtful"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class ServerFacts:
    max_packet_bytes: int
    server_time_zone: str
    session_time_zone: str
    is_read_only: bool
    flush_at_commit: int
    data_directory: str
    skew_seconds: float
    isolation: str


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything, in the order of dependence."""
    yield from _examine_settings(settings)
    try:
        with connection.connect(settings.database) as conn:
            yield Finding(Verdict.GOOD, "database", f"{conn.dialect.name} at {conn.address.place}")
            facts = _facts(conn)
            yield from judge_server(facts)
            yield from _examine_text(conn)
            yield from _examine_schema(conn)
            yield examine_disk(conn.address.host, facts.data_directory)
    except Problem as problem:
        yield Finding(Verdict.BROKEN, "database", str(problem))
    yield _examine_redis(settings)


def _examine_settings(settings: Settings) -> Iterator[Finding]:
    for name in settings.unknown:
        yield Finding(Verdict.DOUBTFUL, "settings", f"unknown variable {name}")
    if settings.secrets.master_key is None:
        yield Finding(Verdict.DOUBTFUL, "settings", "NOVEL_MASTER_KEY is not set: API keys cannot be made or checked")


def _facts(conn: connection.Connection) -> ServerFacts:
    before = time.time()
    row = conn.fetch_one(_FACTS)
    after = time.time()
    (isolation,) = conn.fetch_one(_ISOLATION_MARIADB if conn.dialect.is_mariadb else _ISOLATION_MYSQL) or ("",)
    assert row is not None
    packet, server_zone, session_zone, read_only, flush, directory, server_time = row
    return ServerFacts(
        max_packet_bytes=int(packet),
        server_time_zone=server_zone,
        session_time_zone=session_zone,
        is_read_only=str(read_only).upper() not in ("0", "OFF"),
        flush_at_commit=int(flush),
        data_directory=directory,
        # The answer was read between the two; what lies outside of that is skew.
        skew_seconds=max(before - float(server_time), float(server_time) - after, 0.0),
        isolation=str(isolation),
    )


def judge_server(facts: ServerFacts) -> Iterator[Finding]:
    yield _judged(
        facts.isolation == "READ-COMMITTED",
        Verdict.BROKEN,
        "isolation",
        f"{facts.isolation} on our connections",
    )
    yield _judged(
        facts.session_time_zone == "+00:00",
        Verdict.BROKEN,
        "time zone",
        f"{facts.session_time_zone} on our connections (server: {facts.server_time_zone})",
    )
    yield _judged(
        facts.max_packet_bytes >= MIN_PACKET_BYTES,
        Verdict.DOUBTFUL,
        "max_allowed_packet",
        f"{facts.max_packet_bytes >> 20} MiB",
        f"a full batch needs {MIN_PACKET_BYTES >> 20} MiB: SET GLOBAL max_allowed_packet = {MIN_PACKET_BYTES};",
    )
    yield _judged(
        not facts.is_read_only,
        Verdict.BROKEN,
        "writable",
        "no: the server is read-only" if facts.is_read_only else "yes",
        "use the primary, or SET GLOBAL read_only = 0;",
    )
    yield _judged(
        facts.flush_at_commit == 1,
        Verdict.DOUBTFUL,
        "durability",
        f"innodb_flush_log_at_trx_commit = {facts.flush_at_commit}",
        "an accepted batch can be lost in a crash unless it is 1",
    )
    yield _judged(
        facts.skew_seconds <= MAX_SKEW_SECONDS,
        Verdict.DOUBTFUL,
        "clock",
        f"{facts.skew_seconds:.1f} s between this machine and the database",
        "run NTP on both",
    )


def judge_disk(subject: str, free_bytes: int, total_bytes: int) -> Finding:
    used = 100 - free_bytes * 100 // total_bytes if total_bytes else 100
    text = f"{free_bytes / (1 << 30):.1f} GiB free, {used} % used"
    if used >= 90:
        return Finding(Verdict.BROKEN, subject, text)
    return Finding(Verdict.DOUBTFUL if used >= 80 else Verdict.GOOD, subject, text)


def examine_disk(host: str, data_directory: str) -> Finding:
    unseen = Finding(Verdict.DOUBTFUL, "disk", "the database's disk cannot be seen from here: watch it there")
    if host not in LOCAL_HOSTS:
        return unseen
    try:
        usage = shutil.disk_usage(data_directory)
    except OSError:  # another user's folder, or another container's
        return unseen
    return judge_disk("disk", usage.free, usage.total)


def _examine_text(conn: connection.Connection) -> Iterator[Finding]:
    wanted = {TEXT_COLLATION, conn.dialect.identifier_collation}
    there = {row[0] for row in conn.fetch_all(_COLLATIONS, tuple(wanted))}
    missing = ", ".join(sorted(wanted - there))
    folds = not missing and (conn.fetch_one(_FOLDING) or (0,))[0] == 1
    text = f"{TEXT_COLLATION}, đ = d" if folds else f"lacks {missing}" if missing else "does not fold đ to d"
    yield _judged(folds, Verdict.BROKEN, "collation", text)


def _examine_schema(conn: connection.Connection) -> Iterator[Finding]:
    there = version.current(conn)
    try:
        version.require(there, place=conn.address.place)
    except version.SchemaOutdated as problem:
        yield Finding(Verdict.BROKEN, "schema", str(problem))
        return
    try:
        version.require_known(there, place=conn.address.place)
    except version.SchemaNewer as problem:
        yield Finding(Verdict.DOUBTFUL, "schema", str(problem))
        return
    differences = drift.check(conn)
    advice = (
        f"{len(differences)} differences, the first: {differences[0]}. Run: novel schema check" if differences else ""
    )
    yield _judged(not differences, Verdict.DOUBTFUL, "schema", f"version {there} of {migrations.latest()}", advice)
    (indexes,) = conn.fetch_one(_FULLTEXT, (conn.table("wp_novel_stories"),)) or (0,)
    yield _judged(indexes >= 2, Verdict.BROKEN, "full-text", f"{indexes} of 2 indexes on stories")


def _examine_redis(settings: Settings) -> Finding:
    address = settings.redis.address
    if address is None:
        return Finding(Verdict.DOUBTFUL, "redis", "not configured: nonces, limits and caches use the database")
    client = redis_client.Redis.from_url(
        address.url,
        socket_timeout=settings.redis.timeout_seconds,
        socket_connect_timeout=settings.redis.timeout_seconds,
    )
    try:
        found = str(client.info("server")["redis_version"])
    except redis_client.AuthenticationError:
        return Finding(Verdict.BROKEN, "redis", f"{address.place} refuses the password in NOVEL_REDIS_URL")
    except (redis_client.RedisError, OSError) as error:
        return Finding(
            Verdict.BROKEN,
            "redis",
            f"no answer from {address.place} ({type(error).__name__}): check NOVEL_REDIS_URL",
        )
    finally:
        client.close()
    return Finding(Verdict.GOOD, "redis", f"Redis {found} at {address.place}")


def _judged(is_good: bool, otherwise: Verdict, subject: str, text: str, advice: str = "") -> Finding:
    if is_good:
        return Finding(Verdict.GOOD, subject, text)
    return Finding(otherwise, subject, f"{text}; {advice}" if advice else text)
