"""A schema as plain values, in which the declared and the live one can be compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation


@dataclass(frozen=True, slots=True)
class Column:
    type: str
    """As information_schema writes it, in lower case and without the display width of integers."""
    nullable: bool
    default: str | None = None
    collation: str | None = None
    auto_increment: bool = False
    extra: str | None = None
    """What the server does to it by itself (`on update ...`, `virtual generated`). We declare no such column."""


@dataclass(frozen=True, slots=True)
class Index:
    kind: str
    """PRIMARY, UNIQUE, FULLTEXT or KEY."""
    columns: tuple[str, ...]
    """With `(191)` for a prefix and ` DESC` for a descending part."""


@dataclass(frozen=True, slots=True)
class Table:
    columns: Mapping[str, Column]
    indexes: Mapping[str, Index]
    engine: str = "InnoDB"
    collation: str = ""


Schema = Mapping[str, Table]


def plain_default(value: str | None) -> str | None:
    """A default in one spelling: servers write 0 as 0.0000 for a DECIMAL(14,4)."""
    if value is None:
        return None
    try:
        return format(Decimal(value).normalize(), "f")
    except InvalidOperation:
        return value
