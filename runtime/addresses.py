"""Addresses of the servers we use: `mysql://user:pass@host:port/db` and `redis://...`."""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlsplit

DATABASE_FORM = "mysql://user:password@host:3306/database"
REDIS_FORM = "redis://host:6379/0"
MAX_HOST_LETTERS = 253
_REDIS_OPTIONS = re.compile(r"(db=\d{1,4})?")
_DATABASE_NAME = re.compile(r"[A-Za-z0-9_$-]{1,64}")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a MySQL or MariaDB database is, and who we are there."""

    host: str
    port: int
    user: str
    password: str
    database: str

    @property
    def url(self) -> str:
        """The whole address, secret included: for a child's environment, never for a log."""
        return f"mysql://{quote(self.user, safe='')}:{quote(self.password, safe='')}@{self.place}"

    @property
    def server(self) -> str:
        return f"{_in_brackets(self.host)}:{self.port}"

    @property
    def place(self) -> str:
        """The address without user and password, for messages."""
        return f"{self.server}/{self.database}"

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.user}@{self.place})"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis server is."""

    url: str

    @property
    def place(self) -> str:
        """The address without its password, for messages."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return parts.path
        return f"{_in_brackets(parts.hostname or '')}:{parts.port or 6379}"

    def __repr__(self) -> str:
        return f"RedisAddress({self.place})"


def parse_database(text: str) -> DatabaseAddress:
    parts = _split(text)
    if parts is None or parts.scheme not in ("mysql", "mariadb"):
        raise ValueError(f"must look like {DATABASE_FORM}")
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not parts.username:
        raise ValueError(f"must name a user and a host, like {DATABASE_FORM}")
    if not _DATABASE_NAME.fullmatch(database):
        raise ValueError(f"must end with the name of a database, like {DATABASE_FORM}")
    if parts.query or parts.fragment:
        raise ValueError(f"takes no options after the database name, like {DATABASE_FORM}")
    return DatabaseAddress(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username),
        password=unquote(parts.password or ""),
        database=database,
    )


def parse_redis(text: str) -> RedisAddress:
    parts = _split(text)
    if parts is None or not _names_a_redis(parts):
        raise ValueError(f"must look like {REDIS_FORM}, or be empty to go without Redis")
    return RedisAddress(text)


def _names_a_redis(parts: SplitResult) -> bool:
    if parts.fragment or not _REDIS_OPTIONS.fullmatch(parts.query):
        return False  # other options would end in the driver's own errors
    if parts.scheme == "unix":
        return bool(parts.path)
    database = parts.path.removeprefix("/")  # which redis-py would take for 0 if it were no number
    return parts.scheme in ("redis", "rediss") and bool(parts.hostname) and (not database or database.isdecimal())


def _split(text: str) -> SplitResult | None:
    """The parts of an address, or None. urllib's own complaints quote the address, and with it the password."""
    try:
        parts = urlsplit(text)
        return None if parts.port == 0 or not _can_be_looked_up(parts.hostname or "") else parts
    except ValueError:
        return None


def _can_be_looked_up(host: str) -> bool:
    """Whether the resolver can be asked for it; else it would answer with a UnicodeError."""
    labels = host.removesuffix(".").split(".")
    return not host or (len(host) <= MAX_HOST_LETTERS and host.isascii() and all(0 < len(x) < 64 for x in labels))


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
