"""Every setting of the service: one row each, read once from `NOVEL_*` and handed on as an argument."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass
from typing import Any

from runtime import options
from runtime.addresses import DatabaseAddress, RedisAddress, parse_database, parse_redis
from runtime.options import option
from runtime.worker_settings import RetentionSettings, WorkerSettings

# Credentials of `novel push` and the like: no settings of the service, and no misspelt ones either.
OF_CLIENTS = "NOVEL_PUSH_"


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    address: DatabaseAddress | None = option(
        "NOVEL_DATABASE_URL",
        options.optional(parse_database),
        None,
        "Database, as mysql://user:pass@host:port/db",
        secret=True,
    )
    table_prefix: str = option(
        "NOVEL_TABLE_PREFIX",
        options.table_prefix,
        "wp_",
        "Prefix of every table, as in WordPress's wp-config.php",
    )
    pool_size: int = option(
        "NOVEL_DATABASE_POOL_SIZE",
        options.number(minimum=1, maximum=500),
        10,
        "Connections one API process may hold",
    )
    pool_wait_seconds: float = option(
        "NOVEL_DATABASE_POOL_WAIT_SECONDS",
        options.seconds(minimum=0.1, maximum=60),
        5.0,
        "How long a request waits for a free connection before it is answered with 503",
    )
    connect_seconds: float = option(
        "NOVEL_DATABASE_CONNECT_SECONDS",
        options.seconds(minimum=0.1, maximum=60),
        5.0,
        "Time allowed to open a connection",
    )
    statement_seconds: float = option(
        "NOVEL_DATABASE_STATEMENT_SECONDS",
        options.seconds(minimum=0.1, maximum=3600),
        10.0,
        "Time the server gives one statement of an API process",
    )
    lock_wait_seconds: int = option(
        "NOVEL_DATABASE_LOCK_WAIT_SECONDS",
        options.number(minimum=1, maximum=600),
        5,
        "How long a statement waits for another's row lock before it is rolled back and tried again",
    )
    migration_lock_seconds: int = option(
        "NOVEL_MIGRATION_LOCK_SECONDS",
        options.number(minimum=1, maximum=3600),
        60,
        "How long a migration waits for another migration, or for readers of a table it changes",
    )


@dataclass(frozen=True, slots=True)
class RedisSettings:
    address: RedisAddress | None = option(
        "NOVEL_REDIS_URL",
        options.optional(parse_redis),
        None,
        "Redis, as redis://host:port/0; empty: go without",
        secret=True,
    )
    timeout_seconds: float = option(
        "NOVEL_REDIS_TIMEOUT_SECONDS",
        options.seconds(minimum=0.01, maximum=10),
        0.25,
        "Time allowed for one Redis command",
    )
    retry_seconds: float = option(
        "NOVEL_REDIS_RETRY_SECONDS",
        options.seconds(minimum=0.1, maximum=300),
        2.0,
        "How long Redis is left alone after it failed, before one request tries it again",
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    public_url: str | None = option(
        "NOVEL_PUBLIC_URL",
        options.optional(options.web_address),
        None,
        "Address under which clients reach this service",
    )
    trusted_proxies: tuple[str, ...] = option(
        "NOVEL_TRUSTED_PROXIES",
        options.networks,
        (),
        "Addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed",
    )
    max_body_bytes: int = option(
        "NOVEL_MAX_BODY_BYTES",
        options.number(minimum=1024, maximum=1 << 30),
        16 << 20,
        "Largest request body, as sent, that any route reads",
    )
    check_seconds: float = option(
        "NOVEL_CHECK_SECONDS",
        options.seconds(minimum=0.1, maximum=60),
        3.0,
        "Time one check of /readyz may take before it has failed",
    )
    drain_seconds: float = option(
        "NOVEL_DRAIN_SECONDS",
        options.seconds(minimum=1, maximum=600),
        10.0,
        "Time requests under way get to finish at a stop",
    )
    unready_seconds: float = option(
        "NOVEL_UNREADY_SECONDS",
        options.seconds(minimum=0, maximum=120),
        0.0,
        "Time between /readyz turning off and the stop, so that a load balancer looks away first",
    )


@dataclass(frozen=True, slots=True)
class IngestSettings:
    requests_per_minute: int = option(
        "NOVEL_INGEST_REQUESTS_PER_MINUTE",
        options.number(minimum=1, maximum=1_000_000),
        60,
        "Batches one key may push in any 60 seconds; it may ask for states ten times as often",
    )
    bytes_per_minute: int = option(
        "NOVEL_INGEST_BYTES_PER_MINUTE",
        options.number(minimum=1, maximum=1 << 40),
        50 << 20,
        "Bytes one key may push in any 60 seconds, decompressed",
    )
    address_requests_per_minute: int = option(
        "NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE",
        options.number(minimum=1, maximum=1_000_000),
        1200,
        "Requests to ingest routes that one client address may make in any 60 seconds, with whatever key",
    )
    allowed_addresses: tuple[str, ...] = option(
        "NOVEL_INGEST_ALLOWED_ADDRESSES",
        options.networks,
        (),
        "Addresses and networks that may use ingest routes, separated by commas; empty: all",
    )
    require_tls: bool = option(
        "NOVEL_INGEST_REQUIRE_TLS",
        options.switch,
        True,
        "Whether ingest refuses plain HTTP from other machines; on or off",
    )
    max_stories_bytes: int = option(
        "NOVEL_INGEST_MAX_STORIES_BYTES",
        options.number(minimum=1024, maximum=256 << 20),
        5 << 20,
        "Largest batch of stories, decompressed",
    )
    max_chapters_bytes: int = option(
        "NOVEL_INGEST_MAX_CHAPTERS_BYTES",
        options.number(minimum=1024, maximum=256 << 20),
        12 << 20,
        "Largest batch of chapters, decompressed",
    )
    body_seconds: float = option(
        "NOVEL_INGEST_BODY_SECONDS",
        options.seconds(minimum=0.1, maximum=3600),
        60.0,
        "Time the whole body of a batch may take to arrive",
    )
    buffer_bytes: int = option(
        "NOVEL_INGEST_BUFFER_BYTES",
        options.number(minimum=1024, maximum=1 << 40),
        128 << 20,
        "Bytes of batches that one process holds at a time; who finds no room waits, and is then answered with 503",
    )
    lock_failures: int = option(
        "NOVEL_INGEST_LOCK_FAILURES",
        options.number(minimum=1, maximum=1_000_000),
        20,
        "Wrong signatures within 10 minutes after which a key is locked",
    )
    lock_seconds: int = option(
        "NOVEL_INGEST_LOCK_SECONDS",
        options.number(minimum=1, maximum=30 * 86400),
        900,
        "How long a key stays locked, unless it is unlocked before",
    )
    idempotency_hours: int = option(
        "NOVEL_INGEST_IDEMPOTENCY_HOURS",
        options.number(minimum=1, maximum=8760),
        72,
        "How long a repeated batch gets the answer of the first",
    )
    queue_max_items: int = option(
        "NOVEL_QUEUE_MAX_ITEMS",
        options.number(minimum=1, maximum=1 << 40),
        2_000_000,
        "Waiting items past which new batches are answered with 503",
    )
    queue_max_bytes: int = option(
        "NOVEL_QUEUE_MAX_BYTES",
        options.number(minimum=1, maximum=1 << 50),
        8 << 30,
        "Waiting bytes, as stored, past which new batches are answered with 503",
    )
    content_encoding: str = option(
        "NOVEL_CONTENT_ENCODING",
        options.one_of("gzip", "zstd", "none"),
        "gzip",
        "How chapter bodies are stored: gzip, which PHP reads without an extension, zstd or none",
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    format: str = option(
        "NOVEL_LOG_FORMAT",
        options.one_of("auto", "json", "human"),
        "auto",
        "json, human, or auto: human on a terminal and json elsewhere",
    )
    level: str = option(
        "NOVEL_LOG_LEVEL",
        options.one_of("debug", "info", "warning", "error"),
        "info",
        "Least level that is logged",
    )


@dataclass(frozen=True, slots=True)
class SecretSettings:
    master_key: str | None = option(
        "NOVEL_MASTER_KEY",
        options.optional(options.master_key),
        None,
        "Key from which every API key's secret is derived: at least 32 characters",
        secret=True,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    database: DatabaseSettings
    redis: RedisSettings
    http: HttpSettings
    ingest: IngestSettings
    worker: WorkerSettings
    retention: RetentionSettings
    logs: LogSettings
    secrets: SecretSettings
    unknown: tuple[str, ...] = ()
    """Variables that look like ours but are not: most likely misspelt, so they are reported at start."""


GROUPS: dict[str, type] = {
    "database": DatabaseSettings,
    "redis": RedisSettings,
    "http": HttpSettings,
    "ingest": IngestSettings,
    "worker": WorkerSettings,
    "retention": RetentionSettings,
    "logs": LogSettings,
    "secrets": SecretSettings,
}


def load(environ: Mapping[str, str]) -> Settings:
    """Read every setting, or raise BadSetting naming the first variable that is wrong."""
    groups: dict[str, Any] = {name: options.read(cls, environ) for name, cls in GROUPS.items()}
    return Settings(**groups, unknown=tuple(_unknown(environ)))


def every_option() -> Iterator[Field[Any]]:
    for cls in GROUPS.values():
        yield from options.variables_of(cls)


def variables() -> set[str]:
    """Every environment variable that has a meaning, the `*_FILE` forms of secrets included."""
    known = set()
    for declared in every_option():
        known.add(declared.metadata["variable"])
        if declared.metadata["secret"]:
            known.add(declared.metadata["variable"] + "_FILE")
    return known


def _unknown(environ: Mapping[str, str]) -> Iterator[str]:
    known = variables()
    for name in sorted(environ):
        if name.startswith("NOVEL_") and not name.startswith(OF_CLIENTS) and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            yield f"{name} (did you mean {close[0]}?)" if close else name
