"""Settings of workers: how they share the queue, and how long what they did is kept."""

from dataclasses import dataclass

from runtime import options
from runtime.options import option


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    lease_seconds: float = option(
        "NOVEL_LEASE_SECONDS",
        options.seconds(minimum=1, maximum=86400),
        120.0,
        "How long a worker may be silent before others take over what it holds",
    )
    max_attempts: int = option(
        "NOVEL_MAX_ATTEMPTS",
        options.number(minimum=1, maximum=1000),
        5,
        "Failures after which an item is a dead letter",
    )
    max_crashes: int = option(
        "NOVEL_MAX_CRASHES",
        options.number(minimum=1, maximum=1000),
        5,
        "Workers that may die over a single item before it is a dead letter",
    )
    retry_seconds: tuple[float, ...] = option(
        "NOVEL_RETRY_SECONDS",
        options.list_of_seconds(minimum=0, maximum=30 * 86400),
        (30.0, 120.0, 600.0, 1800.0, 3600.0),
        "Wait after the first, second, ... failure of an item, separated by commas; the last for all further ones",
    )
    poll_seconds: float = option(
        "NOVEL_POLL_SECONDS",
        options.seconds(minimum=0.01, maximum=60),
        1.0,
        "Longest wait of an idle worker between two looks at the queue; Redis wakes it earlier",
    )
    statement_seconds: float = option(
        "NOVEL_WORKER_STATEMENT_SECONDS",
        options.seconds(minimum=1, maximum=3600),
        60.0,
        "Time the server gives one statement of a worker",
    )
    stop_seconds: float = option(
        "NOVEL_WORKER_STOP_SECONDS",
        options.seconds(minimum=1, maximum=600),
        30.0,
        "Time a worker gets at a stop to finish what it has begun",
    )
    recount_window_seconds: float = option(
        "NOVEL_RECOUNT_WINDOW_SECONDS",
        options.seconds(minimum=0, maximum=86400),
        60.0,
        "How long changes of a story are gathered before its counts are computed again",
    )
    metrics_address: tuple[str, int] | None = option(
        "NOVEL_WORKER_METRICS_ADDRESS",
        options.optional(options.host_and_port),
        None,
        "Where workers show /metrics, as 127.0.0.1:9101; empty: nowhere",
    )
    chapter_versions: int = option(
        "NOVEL_CHAPTER_VERSIONS",
        options.number(minimum=0, maximum=1000),
        5,
        "Earlier bodies that are kept of a chapter",
    )


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    completed_days: int = option(
        "NOVEL_RETAIN_COMPLETED_DAYS",
        options.number(minimum=1, maximum=3650),
        7,
        "How long completed jobs and their requests are kept",
    )
    failed_days: int = option(
        "NOVEL_RETAIN_FAILED_DAYS",
        options.number(minimum=1, maximum=3650),
        30,
        "How long failed jobs, dead letters and their requests are kept",
    )
    payload_minutes: int = option(
        "NOVEL_RETAIN_PAYLOAD_MINUTES",
        options.number(minimum=0, maximum=43200),
        60,
        "How long the payload of completed jobs is kept",
    )
    logs_days: int = option(
        "NOVEL_RETAIN_LOGS_DAYS",
        options.number(minimum=1, maximum=3650),
        30,
        "How long rows of wp_novel_sync_logs are kept",
    )
    security_logs_days: int = option(
        "NOVEL_RETAIN_SECURITY_LOGS_DAYS",
        options.number(minimum=1, maximum=3650),
        90,
        "How long those about keys, administrators and replays are kept",
    )
    history_days: int = option(
        "NOVEL_RETAIN_HISTORY_DAYS",
        options.number(minimum=1, maximum=3650),
        90,
        "How long it is remembered who read which chapter",
    )
    events_days: int = option(
        "NOVEL_RETAIN_EVENTS_DAYS",
        options.number(minimum=1, maximum=3650),
        90,
        "How long events are kept for those who follow them",
    )
    tokens_days: int = option(
        "NOVEL_RETAIN_TOKENS_DAYS",
        options.number(minimum=0, maximum=3650),
        7,
        "How long refresh tokens are kept after they have expired",
    )
    minutes_days: int = option(
        "NOVEL_RETAIN_MINUTES_DAYS",
        options.number(minimum=1, maximum=3650),
        30,
        "How long it is kept what the queue did in each minute",
    )
    counter_flush_seconds: float = option(
        "NOVEL_COUNTER_FLUSH_SECONDS",
        options.seconds(minimum=1, maximum=86400),
        300.0,
        "How often views and reads counted in Redis are written to the database",
    )
