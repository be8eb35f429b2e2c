"""An address is read exactly as it was meant, or refused in words that repeat nothing of it."""

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.addresses import DatabaseAddress, RedisAddress, parse_database, parse_redis

OUR_WORDS = re.compile(
    r"(must look like|must name a user and a host, like|must end with the name of a database, like"
    r"|takes no options after the database name, like) mysql://user:password@host:3306/database"
)
OUR_REDIS_WORDS = "must look like redis://host:6379/0, or be empty to go without Redis"

HOSTS = (
    st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map(str)
    | st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{2,8}){0,2}", fullmatch=True)
)


def refusal(parse: Callable[[str], object], text: str) -> str | None:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return None


def test_every_part_of_a_database_address_is_read() -> None:
    address = parse_database("mysql://novel:hush@db.example:3307/stories")
    assert address == DatabaseAddress("db.example", 3307, "novel", "hush", "stories")


def test_port_and_password_of_a_database_may_be_left_out() -> None:
    assert parse_database("mysql://novel@db/stories") == DatabaseAddress("db", 3306, "novel", "", "stories")


def test_mariadb_is_another_name_of_the_scheme() -> None:
    assert parse_database("mariadb://u:p@h/d") == parse_database("mysql://u:p@h/d")


def test_escapes_in_user_and_password_are_undone() -> None:
    address = parse_database("mysql://a%40b:p%3A%2F%3F%23%40%25%20%C4%91@h/d")
    assert (address.user, address.password) == ("a@b", "p:/?#@% đ")


def test_a_plus_in_a_password_is_a_plus() -> None:
    assert parse_database("mysql://u:a+b@h/d").password == "a+b"


def test_an_unescaped_at_sign_belongs_to_the_password() -> None:
    address = parse_database("mysql://u:p@ss@h/d")
    assert (address.password, address.host) == ("p@ss", "h")


def test_an_ipv6_host_is_read_without_and_written_with_brackets() -> None:
    address = parse_database("mysql://u:p@[2001:db8::1]:3307/d")
    assert address.host == "2001:db8::1"
    assert address.place == "[2001:db8::1]:3307/d"
    assert parse_database(address.url) == address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must look like"),
        ("novel", "must look like"),
        ("postgres://u:p@h/d", "must look like"),
        ("mysql:u:p@h/d", "must name a user and a host"),
        ("mysql://h/d", "must name a user and a host"),
        ("mysql://:p@h/d", "must name a user and a host"),
        ("mysql://u:p@/d", "must name a user and a host"),
        ("mysql://u:p@:3306/d", "must name a user and a host"),
        ("mysql://u:p@h", "must end with the name of a database"),
        ("mysql://u:p@h/", "must end with the name of a database"),
        ("mysql://u:p@h/d/e", "must end with the name of a database"),
        ("mysql://u:p@h/d%60", "must end with the name of a database"),
        ("mysql://u:p@h/" + "d" * 65, "must end with the name of a database"),
        ("mysql://u:p@h/d?charset=utf8", "takes no options"),
        ("mysql://u:p@h/d#x", "takes no options"),
        ("mysql://u:p@h:port/d", "must look like"),
        ("mysql://u:p@h:70000/d", "must look like"),
        ("mysql://u:p@h:0/d", "must look like"),
        ("mysql://u:p@a..b/d", "must look like"),
        ("mysql://u:p@" + "h" * 64 + "/d", "must look like"),
        ("mysql://u:p@" + "h." * 127 + "/d", "must look like"),
        ("mysql://u:p@[::1/d", "must look like"),
    ],
)
def test_what_is_wrong_with_a_database_address_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        parse_database(text)
    assert OUR_WORDS.fullmatch(str(raised.value))


@given(
    host=HOSTS,
    port=st.integers(1, 65535),
    user=st.text(min_size=1, max_size=40),
    password=st.text(max_size=40),
    database=st.from_regex(r"[A-Za-z0-9_$-]{1,64}", fullmatch=True),
)
@example(host="h", port=1, user="%", password="%25\t\n/?#@:[]\\", database="d")
def test_any_user_and_password_survive_the_way_through_an_address(
    host: str, port: int, user: str, password: str, database: str
) -> None:
    address = DatabaseAddress(host, port, user, password, database)
    assert parse_database(address.url) == address


@given(st.text(max_size=30))
@example("hush℀")  # urllib refuses it and quotes the whole address
@example("x@y:hush")
@example("[hush")
def test_a_refusal_never_repeats_the_database_address(password: str) -> None:
    said = refusal(parse_database, f"mysql://u:{password}@h/d")
    assert said is None or OUR_WORDS.fullmatch(said)


@given(st.text(max_size=30))
@example("hush/2")  # urllib takes `hush` for the port and says so
@example("hush℀")
@example("[hush")
def test_a_refusal_never_repeats_the_redis_address(password: str) -> None:
    assert refusal(parse_redis, f"redis://u:{password}@h:6379/0") in (None, OUR_REDIS_WORDS)


def test_a_database_password_is_in_the_url_alone() -> None:
    address = parse_database("mysql://novel:hush@h:3306/d")
    assert "hush" in address.url
    assert repr(address) == str(address) == f"{address}" == "DatabaseAddress(novel@h:3306/d)"
    assert address.place == "h:3306/d"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("redis://h", "h:6379"),
        ("redis://h:6380/2", "h:6380"),
        ("rediss://user:hush@h:6380/0", "h:6380"),
        ("redis://:hush@127.0.0.1:6379/0", "127.0.0.1:6379"),
        ("redis://:hush@[::1]:6380/0", "[::1]:6380"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("unix://:hush@/run/redis.sock?db=1", "/run/redis.sock"),
    ],
)
def test_a_redis_address_is_kept_whole_and_shown_without_its_password(text: str, place: str) -> None:
    address = parse_redis(text)
    assert address == RedisAddress(text)
    assert address.place == place
    assert repr(address) == str(address) == f"RedisAddress({place})"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h:6379",
        "redis://",
        "redis:///0",
        "http://h",
        "unix://",
        "redis://h:port/0",
        "redis://h:70000",
        "redis://[::1",
        "redis://a..b/0",
        "redis://h/abc",
        "redis://h/0?foo=bar",
        "redis://h/0?socket_timeout=abc",
        "redis://h/0#x",
    ],
)
def test_what_is_no_redis_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(OUR_REDIS_WORDS)):
        parse_redis(text)
