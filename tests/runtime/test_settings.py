"""Every option's default, form and limits; secrets from files; a bad value is named, a secret never shown."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runtime import settings
from runtime.addresses import parse_database, parse_redis
from runtime.problems import BadSetting, Problem
from tests.conftest import ROOT

KEY = "0123456789abcdef0123456789abcdef"


class Row(NamedTuple):
    """What one variable promises."""

    field: str
    default: Any
    good: dict[str, Any]
    bad: list[str]


NOT_WHOLE_NUMBERS = ["", "x", "1.0", "1e2", "0x10", "٣", "1 0", "+5", "1_0", "9" * 19]
NOT_SECONDS = ["", "x", "-1", "1e2", "nan", "inf", ".5", "1.", "1,5", "9" * 10]
NOT_NETWORKS = ["h", "192.0.2", "192.0.2.7/33", "192.0.2.7;198.51.100.7", "192.0.2.7 198.51.100.7", "http://192.0.2.7"]


def whole(field: str, default: int, low: int, high: int) -> Row:
    return Row(field, default, {str(low): low, str(high): high}, [*NOT_WHOLE_NUMBERS, str(low - 1), str(high + 1)])


def some_seconds(field: str, default: float, low: float, high: float) -> Row:
    below = [f"{low - 0.009:g}"] if low else []
    good = {f"{low:g}": float(low), f"{high:g}": float(high)}
    return Row(field, float(default), good, [*NOT_SECONDS, *below, f"{high + 0.1:.1f}"])


ROWS = {
    "NOVEL_DATABASE_URL": Row(
        "database.address", None, {"mysql://u:p@h/d": parse_database("mysql://u:p@h/d"), "": None}, ["h", "mysql://h/d"]
    ),
    "NOVEL_TABLE_PREFIX": Row(
        "database.table_prefix",
        "wp_",
        {"blog7_": "blog7_", "x": "x", "A" * 20: "A" * 20, " wp_\n": "wp_"},
        ["", "wp-", "a b", "wp_;", "`", "đ_", "x" * 21, "a\nb"],
    ),
    "NOVEL_DATABASE_POOL_SIZE": Row("database.pool_size", 10, {"1": 1, "500": 500}, [*NOT_WHOLE_NUMBERS, "0", "501"]),
    "NOVEL_DATABASE_POOL_WAIT_SECONDS": Row(
        "database.pool_wait_seconds", 5.0, {"0.1": 0.1, "60": 60.0}, [*NOT_SECONDS, "0.09", "60.1"]
    ),
    "NOVEL_DATABASE_CONNECT_SECONDS": Row(
        "database.connect_seconds", 5.0, {"0.1": 0.1, "60": 60.0}, [*NOT_SECONDS, "0.09", "60.1"]
    ),
    "NOVEL_DATABASE_STATEMENT_SECONDS": Row(
        "database.statement_seconds", 10.0, {"0.1": 0.1, "3600": 3600.0}, [*NOT_SECONDS, "0.09", "3600.1"]
    ),
    "NOVEL_DATABASE_LOCK_WAIT_SECONDS": Row(
        "database.lock_wait_seconds", 5, {"1": 1, "600": 600}, [*NOT_WHOLE_NUMBERS, "0", "601"]
    ),
    "NOVEL_MIGRATION_LOCK_SECONDS": Row(
        "database.migration_lock_seconds", 60, {"1": 1, "3600": 3600}, [*NOT_WHOLE_NUMBERS, "0", "3601"]
    ),
    "NOVEL_REDIS_URL": Row(
        "redis.address", None, {"redis://h": parse_redis("redis://h"), "": None}, ["h:6379", "http://h"]
    ),
    "NOVEL_REDIS_TIMEOUT_SECONDS": Row(
        "redis.timeout_seconds", 0.25, {"0.01": 0.01, "10": 10.0}, [*NOT_SECONDS, "0.009", "10.1"]
    ),
    "NOVEL_REDIS_RETRY_SECONDS": Row(
        "redis.retry_seconds", 2.0, {"0.1": 0.1, "300": 300.0}, [*NOT_SECONDS, "0.09", "300.1"]
    ),
    "NOVEL_PUBLIC_URL": Row(
        "http.public_url",
        None,
        {
            "": None,
            "https://novels.example": "https://novels.example",
            "http://h:8080/": "http://h:8080",
            "https://h/blog/": "https://h/blog",
        },
        ["novels.example", "ftp://h", "https://", "https:///x", "https://a b", "https://h/?q", "https://h/#f"],
    ),
    "NOVEL_TRUSTED_PROXIES": Row(
        "http.trusted_proxies",
        (),
        {"192.0.2.7, 2001:db8::/32": ("192.0.2.7/32", "2001:db8::/32"), "": ()},
        NOT_NETWORKS,
    ),
    "NOVEL_MAX_BODY_BYTES": Row(
        "http.max_body_bytes",
        16 * 1024 * 1024,
        {"1024": 1024, "1073741824": 1 << 30},
        [*NOT_WHOLE_NUMBERS, "1023", "1073741825"],
    ),
    "NOVEL_CHECK_SECONDS": Row("http.check_seconds", 3.0, {"0.1": 0.1, "60": 60.0}, [*NOT_SECONDS, "0.09", "60.1"]),
    "NOVEL_DRAIN_SECONDS": Row("http.drain_seconds", 10.0, {"1": 1.0, "600": 600.0}, [*NOT_SECONDS, "0.9", "600.1"]),
    "NOVEL_UNREADY_SECONDS": Row("http.unready_seconds", 0.0, {"0": 0.0, "120": 120.0}, [*NOT_SECONDS, "120.1"]),
    "NOVEL_INGEST_REQUESTS_PER_MINUTE": Row(
        "ingest.requests_per_minute",
        60,
        {"1": 1, "1000000": 1_000_000},
        [*NOT_WHOLE_NUMBERS, "0", "1000001"],
    ),
    "NOVEL_INGEST_BYTES_PER_MINUTE": Row(
        "ingest.bytes_per_minute",
        50 * 1024 * 1024,
        {"1": 1, "1099511627776": 1 << 40},
        [*NOT_WHOLE_NUMBERS, "0", "1099511627777"],
    ),
    "NOVEL_INGEST_ADDRESS_REQUESTS_PER_MINUTE": Row(
        "ingest.address_requests_per_minute",
        1200,
        {"1": 1, "1000000": 1_000_000},
        [*NOT_WHOLE_NUMBERS, "0", "1000001"],
    ),
    "NOVEL_INGEST_ALLOWED_ADDRESSES": Row(
        "ingest.allowed_addresses",
        (),
        {"192.0.2.7,198.51.100.0/24": ("192.0.2.7/32", "198.51.100.0/24"), "": ()},
        NOT_NETWORKS,
    ),
    "NOVEL_INGEST_REQUIRE_TLS": Row(
        "ingest.require_tls", True, {"off": False, "on": True, "OFF": False}, ["", "true", "1", "no", "on,off"]
    ),
    "NOVEL_INGEST_MAX_STORIES_BYTES": Row(
        "ingest.max_stories_bytes",
        5 * 1024 * 1024,
        {"1024": 1024, "268435456": 256 << 20},
        [*NOT_WHOLE_NUMBERS, "1023", "268435457"],
    ),
    "NOVEL_INGEST_MAX_CHAPTERS_BYTES": Row(
        "ingest.max_chapters_bytes",
        12 * 1024 * 1024,
        {"1024": 1024, "268435456": 256 << 20},
        [*NOT_WHOLE_NUMBERS, "1023", "268435457"],
    ),
    "NOVEL_INGEST_BODY_SECONDS": Row(
        "ingest.body_seconds", 60.0, {"0.1": 0.1, "3600": 3600.0}, [*NOT_SECONDS, "0.09", "3600.1"]
    ),
    "NOVEL_INGEST_BUFFER_BYTES": Row(
        "ingest.buffer_bytes",
        128 * 1024 * 1024,
        {"1024": 1024, "1099511627776": 1 << 40},
        [*NOT_WHOLE_NUMBERS, "1023", "1099511627777"],
    ),
    "NOVEL_INGEST_LOCK_FAILURES": Row(
        "ingest.lock_failures", 20, {"1": 1, "1000000": 1_000_000}, [*NOT_WHOLE_NUMBERS, "0", "1000001"]
    ),
    "NOVEL_INGEST_LOCK_SECONDS": Row(
        "ingest.lock_seconds", 900, {"1": 1, "2592000": 30 * 86400}, [*NOT_WHOLE_NUMBERS, "0", "2592001"]
    ),
    "NOVEL_INGEST_IDEMPOTENCY_HOURS": Row(
        "ingest.idempotency_hours", 72, {"1": 1, "8760": 8760}, [*NOT_WHOLE_NUMBERS, "0", "8761"]
    ),
    "NOVEL_QUEUE_MAX_ITEMS": Row(
        "ingest.queue_max_items",
        2_000_000,
        {"1": 1, "1099511627776": 1 << 40},
        [*NOT_WHOLE_NUMBERS, "0", "1099511627777"],
    ),
    "NOVEL_QUEUE_MAX_BYTES": Row(
        "ingest.queue_max_bytes",
        8 * 1024 * 1024 * 1024,
        {"1": 1, "1125899906842624": 1 << 50},
        [*NOT_WHOLE_NUMBERS, "0", "1125899906842625"],
    ),
    "NOVEL_CONTENT_ENCODING": Row(
        "ingest.content_encoding",
        "gzip",
        {"gzip": "gzip", "ZSTD": "zstd", "none": "none"},
        ["", "br", "deflate", "gzip,zstd"],
    ),
    "NOVEL_LEASE_SECONDS": some_seconds("worker.lease_seconds", 120, 1, 86400),
    "NOVEL_MAX_ATTEMPTS": whole("worker.max_attempts", 5, 1, 1000),
    "NOVEL_MAX_CRASHES": whole("worker.max_crashes", 5, 1, 1000),
    "NOVEL_RETRY_SECONDS": Row(
        "worker.retry_seconds",
        (30.0, 120.0, 600.0, 1800.0, 3600.0),
        {"0": (0.0,), "1, 2.5,3": (1.0, 2.5, 3.0)},
        ["", "x", "1,", ",1", "1;2", "-1", "1e2", "2592000.1"],
    ),
    "NOVEL_POLL_SECONDS": some_seconds("worker.poll_seconds", 1, 0.01, 60),
    "NOVEL_WORKER_STATEMENT_SECONDS": some_seconds("worker.statement_seconds", 60, 1, 3600),
    "NOVEL_WORKER_STOP_SECONDS": some_seconds("worker.stop_seconds", 30, 1, 600),
    "NOVEL_RECOUNT_WINDOW_SECONDS": some_seconds("worker.recount_window_seconds", 60, 0, 86400),
    "NOVEL_WORKER_METRICS_ADDRESS": Row(
        "worker.metrics_address",
        None,
        {"": None, "127.0.0.1:9101": ("127.0.0.1", 9101), "[::1]:65535": ("::1", 65535)},
        ["9101", ":9101", "127.0.0.1:", "h:0", "h:65536", "::1:9101", "http://h:1", "h:1/m", "h h:1"],
    ),
    "NOVEL_CHAPTER_VERSIONS": whole("worker.chapter_versions", 5, 0, 1000),
    "NOVEL_RETAIN_COMPLETED_DAYS": whole("retention.completed_days", 7, 1, 3650),
    "NOVEL_RETAIN_FAILED_DAYS": whole("retention.failed_days", 30, 1, 3650),
    "NOVEL_RETAIN_PAYLOAD_MINUTES": whole("retention.payload_minutes", 60, 0, 43200),
    "NOVEL_RETAIN_LOGS_DAYS": whole("retention.logs_days", 30, 1, 3650),
    "NOVEL_RETAIN_SECURITY_LOGS_DAYS": whole("retention.security_logs_days", 90, 1, 3650),
    "NOVEL_RETAIN_HISTORY_DAYS": whole("retention.history_days", 90, 1, 3650),
    "NOVEL_RETAIN_EVENTS_DAYS": whole("retention.events_days", 90, 1, 3650),
    "NOVEL_RETAIN_TOKENS_DAYS": whole("retention.tokens_days", 7, 0, 3650),
    "NOVEL_RETAIN_MINUTES_DAYS": whole("retention.minutes_days", 30, 1, 3650),
    "NOVEL_COUNTER_FLUSH_SECONDS": some_seconds("retention.counter_flush_seconds", 300, 1, 86400),
    "NOVEL_LOG_FORMAT": Row(
        "logs.format", "auto", {"auto": "auto", "json": "json", "Human": "human"}, ["", "xml", "auto,json"]
    ),
    "NOVEL_LOG_LEVEL": Row(
        "logs.level",
        "info",
        {"debug": "debug", "INFO": "info", "warning": "warning", "error": "error"},
        ["", "loud", "10", "critical"],
    ),
    "NOVEL_MASTER_KEY": Row("secrets.master_key", None, {KEY: KEY, "": None}, ["short", KEY[1:]]),
}
SECRETS = ["NOVEL_DATABASE_URL", "NOVEL_REDIS_URL", "NOVEL_MASTER_KEY"]


def value_of(field: str, environ: dict[str, str]) -> Any:
    group, _, name = field.partition(".")
    return getattr(getattr(settings.load(environ), group), name)


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(BadSetting) as raised:
        settings.load(environ)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_every_option_is_in_the_table_of_this_test() -> None:
    assert {declared.metadata["variable"] for declared in settings.every_option()} == set(ROWS)


@pytest.mark.parametrize(("variable", "row"), ROWS.items(), ids=str)
def test_an_option_that_is_not_set_has_its_default(variable: str, row: Row) -> None:
    assert value_of(row.field, {}) == row.default


@pytest.mark.parametrize(
    ("variable", "text", "value"), [(name, *pair) for name, row in ROWS.items() for pair in row.good.items()]
)
def test_a_good_value_is_read(variable: str, text: str, value: Any) -> None:
    read = value_of(ROWS[variable].field, {variable: text})
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("variable", ROWS)
def test_space_around_a_value_does_not_count(variable: str) -> None:
    text, value = next(iter(ROWS[variable].good.items()))
    assert value_of(ROWS[variable].field, {variable: f" \t{text}\r\n"}) == value


@pytest.mark.parametrize(("variable", "text"), [(name, bad) for name, row in ROWS.items() for bad in row.bad])
def test_a_bad_value_is_refused_in_one_line_that_names_the_variable(variable: str, text: str) -> None:
    line = refusal({variable: text})
    assert re.match(rf"{variable} (must|takes) ", line)
    assert line.endswith(".")
    if variable not in SECRETS:
        assert repr(text) in line


def test_a_bad_setting_is_a_problem_with_the_exit_code_of_wrong_usage() -> None:
    assert issubclass(BadSetting, Problem)
    assert BadSetting.exit_code == 2


def test_the_first_bad_variable_is_named_even_when_others_are_fine() -> None:
    assert refusal({"NOVEL_LOG_LEVEL": "info", "NOVEL_DRAIN_SECONDS": "soon"}).startswith("NOVEL_DRAIN_SECONDS must")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("NOVEL_DATABASE_URL", "mysql://hush:hush@h/"),
        ("NOVEL_DATABASE_URL", "mysql://u:hush@h:hush/d"),
        ("NOVEL_DATABASE_URL", "mysql://u:hush℀@h/d"),
        ("NOVEL_REDIS_URL", "redis://u:hush/x@h:6379/0"),
        ("NOVEL_REDIS_URL", "http://:hush@h"),
        ("NOVEL_MASTER_KEY", "hush"),
    ],
)
@pytest.mark.parametrize("from_file", [False, True])
def test_a_refused_secret_is_not_shown(variable: str, text: str, from_file: bool, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    line = refusal({f"{variable}_FILE": str(file)} if from_file else {variable: text})
    assert line.startswith(f"{variable} ")
    assert "hush" not in line


def test_no_secret_is_shown_by_the_settings_themselves() -> None:
    loaded = settings.load(
        {
            "NOVEL_DATABASE_URL": "mysql://u:hush@h/d",
            "NOVEL_REDIS_URL": "redis://:hush@h",
            "NOVEL_MASTER_KEY": "hush" * 8,
        }
    )
    for shown in (loaded, loaded.database, loaded.redis, loaded.secrets):
        assert "hush" not in repr(shown)
        assert "hush" not in f"{shown}"


@pytest.mark.parametrize("variable", SECRETS)
@pytest.mark.parametrize("ending", ["", "\n", "\r\n", " \n\n"])
def test_a_secret_may_come_from_a_file_whose_last_line_ends(variable: str, ending: str, tmp_path: Path) -> None:
    text, value = next(iter(ROWS[variable].good.items()))
    file = tmp_path / "secret"
    file.write_text(text + ending, newline="")
    assert value_of(ROWS[variable].field, {f"{variable}_FILE": str(file)}) == value


def test_a_missing_secret_file_is_named_with_its_variable(tmp_path: Path) -> None:
    line = refusal({"NOVEL_MASTER_KEY_FILE": str(tmp_path / "absent")})
    assert (
        line == f"NOVEL_MASTER_KEY_FILE names {tmp_path / 'absent'}, which cannot be read: No such file or directory."
    )


def test_a_folder_is_no_secret_file(tmp_path: Path) -> None:
    assert "which cannot be read: Is a directory." in refusal({"NOVEL_MASTER_KEY_FILE": str(tmp_path)})


def test_a_secret_file_that_is_not_text_is_refused_without_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"hush\xff" * 10)
    assert refusal({"NOVEL_MASTER_KEY_FILE": str(file)}) == (
        f"NOVEL_MASTER_KEY_FILE names {file}, which is not a text file."
    )


@pytest.mark.parametrize("value", [KEY, ""])
def test_a_secret_given_both_ways_is_refused(value: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(KEY)
    line = refusal({"NOVEL_MASTER_KEY": value, "NOVEL_MASTER_KEY_FILE": str(file)})
    assert line == "NOVEL_MASTER_KEY and NOVEL_MASTER_KEY_FILE are both set: keep one of them."


def test_an_empty_file_variable_counts_as_not_set() -> None:
    assert settings.load({"NOVEL_MASTER_KEY": KEY, "NOVEL_MASTER_KEY_FILE": ""}).secrets.master_key == KEY


def test_a_misspelt_variable_is_reported_with_the_likely_one() -> None:
    assert settings.load({"NOVEL_DATABSE_URL": "x"}).unknown == (
        "NOVEL_DATABSE_URL (did you mean NOVEL_DATABASE_URL?)",
    )


def test_a_variable_like_none_of_ours_is_reported_plainly() -> None:
    assert settings.load({"NOVEL_ZZZ": "", "NOVEL_QQQ": ""}).unknown == ("NOVEL_QQQ", "NOVEL_ZZZ")


def test_only_secrets_have_a_file_form() -> None:
    assert settings.load({"NOVEL_LOG_LEVEL_FILE": "x"}).unknown != ()


def test_our_own_and_foreign_variables_are_not_reported(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(KEY)
    environ = {"NOVEL_LOG_LEVEL": "info", "NOVEL_MASTER_KEY_FILE": str(file), "PATH": "/bin", "NOVELTY": "1"}
    assert settings.load(environ).unknown == ()


def test_the_warning_of_an_unknown_variable_does_not_show_its_value() -> None:
    assert "hush" not in repr(settings.load({"NOVEL_MASTERKEY": "hush"}))


def as_written(default: Any) -> str:
    """A default as a person would set it."""
    if isinstance(default, tuple):
        return ",".join(f"{part:g}" for part in default)
    return ("off", "on")[default] if isinstance(default, bool) else str(default)


def test_the_page_of_settings_says_what_the_code_says() -> None:
    """A setting that nobody can find does not exist."""
    page = (ROOT / "docs" / "settings.md").read_text()
    rows = []
    for declared in settings.every_option():
        secret = " (secret)" if declared.metadata["secret"] else ""
        default = f"`{as_written(declared.default)}`" if declared.default not in (None, ()) else ""
        rows.append(f"| `{declared.metadata['variable']}`{secret} | {default} | {declared.metadata['help']} |")
    assert [line for line in page.splitlines() if line.startswith("| `NOVEL_")] == rows
