"""The prepared statements of one connection, kept as long as they are in use.

Values travel beside the statement, in binary, and rows come back in binary: nothing is escaped, nothing is parsed
from text. docs/decisions.md has what that is worth. The driver has a cache of its own (`stmt_cache_size`), which we
leave alone: it decodes every answer by the column types of the first one, and so reads garbage once a type changes,
by ALTER TABLE or by a value of another type in `SELECT COALESCE(%s, ...)`.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from asyncmy.errors import MySQLError

from store import errors

Parameters = Sequence[Any]

# The server counts statements over all connections (max_prepared_stmt_count, 16382 by default).
MAX_KEPT = 64
MAX_ROWS_AT_ONCE = 128
# A statement with its values has to fit into max_allowed_packet; MariaDB's own default is 16 MiB.
MAX_BYTES_AT_ONCE = 4 << 20

# Cannot be prepared, no room for one more, or changed too often under our hands: run it as text.
_RUN_AS_TEXT = frozenset({1295, 1461, 1615})

_PERCENT = re.compile(r"%(.?)", re.DOTALL)
_INSERT = re.compile(
    r"""
    (?P<head> \s*(?:INSERT|REPLACE)\b (?:(?!\bVALUES\b).)+ \bVALUES\s*)
    (?P<row> \( (?:[^()]|\([^()]*\))* \) )  # a value may be a function call
    (?P<tail> .*)
    """,
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)


class Result(Protocol):
    rows: tuple[tuple[Any, ...], ...] | None
    affected_rows: int
    insert_id: int


class Statements:
    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._kept: dict[str, Any] = {}  # the one used last comes last

    async def execute(self, sql: str, parameters: Parameters) -> Result:
        try:
            statement = self._kept.pop(sql, None) or await self._raw.prepare(with_question_marks(sql))
            self._kept[sql] = statement
            if len(self._kept) > MAX_KEPT:
                await self._kept.pop(next(iter(self._kept))).close()
            statement._meta = None  # the column types it remembers: see above
            result: Result = await statement.execute(tuple(parameters))
        except MySQLError as error:
            if errors.number(error) not in _RUN_AS_TEXT:
                raise
            self._kept.pop(sql, None)
            return await self.execute_as_text(sql, parameters)
        return result

    async def execute_as_text(self, sql: str, parameters: Parameters) -> Result:
        await self._raw.query(self._raw.cursor().mogrify(sql, tuple(parameters)) if parameters else sql)
        result: Result = self._raw._result
        return result


@functools.lru_cache(maxsize=2048)
def with_question_marks(sql: str) -> str:
    """A statement with the placeholders of the server instead of the driver's: `%s` is `?`, `%%` is `%`."""
    return _PERCENT.sub(_native, sql)


def _native(match: re.Match[str]) -> str:
    match match[1]:
        case "s":
            return "?"
        case "%":
            return "%"
    raise ValueError(f"{match[0]!r} in a statement: write %s for a value and %% for a percent sign")


@functools.lru_cache(maxsize=2048)
def for_rows(sql: str, count: int) -> str:
    """An INSERT of one row, written for `count` rows."""
    match = _INSERT.fullmatch(sql)
    if not match:
        raise ValueError(f"not an INSERT with one row of values: {sql!r}")
    return f"{match['head']}{', '.join([match['row']] * count)}{match['tail']}"


def chunks(
    rows: Sequence[Parameters], *, max_rows: int = MAX_ROWS_AT_ONCE, max_bytes: int = MAX_BYTES_AT_ONCE
) -> Iterator[Sequence[Parameters]]:
    """The rows in order, in pieces of 128, 64, 32 ...: few different lengths make few different statements."""
    start = 0
    while start < len(rows):
        length = min(max_rows, 1 << (len(rows) - start).bit_length() - 1)
        while length > 1 and sum(map(_size, rows[start : start + length])) > max_bytes:
            length //= 2
        yield rows[start : start + length]
        start += length


def _size(row: Parameters) -> int:
    """An upper bound: a character takes four bytes at most."""
    size = 0
    for value in row:
        if value.__class__ is bytes:
            size += len(value)
        elif value.__class__ is str:
            size += 4 * len(value)
    return size
