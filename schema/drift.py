"""Names every difference between the declared schema and a live one."""

from collections.abc import Iterator
from typing import Any

from schema import declared, live, neighbours
from schema.connection import Connection
from schema.model import Column, Schema


def check(conn: Connection) -> list[str]:
    """One line per difference; an empty list when the database is as declared."""
    others = tuple(neighbours.prefixes(conn))
    there = {name: table for name, table in live.tables(conn).items() if not name.startswith(others)}
    differences = list(compare(declared.tables(conn.dialect, prefix=conn.table_prefix), there))
    differences += [
        f"{table} {kind} {name}: not declared" for table, kind, name in live.additions(conn) if table in there
    ]
    for table, needed in declared.core_columns(prefix=conn.table_prefix).items():
        columns = live.column_names(conn, table)
        if not columns:
            differences.append(f"{table}: table is missing")
        else:
            differences += [f"{table}.{column}: column is missing" for column in sorted(needed - columns)]
    return differences


def compare(wanted: Schema, there: Schema) -> Iterator[str]:
    for name in sorted(wanted.keys() | there.keys()):
        if name not in there:
            yield f"{name}: table is missing"
        elif name not in wanted:
            yield f"{name}: table is not declared"
        else:
            yield from _attribute(name, "engine", wanted[name].engine, there[name].engine)
            yield from _attribute(name, "collation", wanted[name].collation, there[name].collation)
            yield from _columns(name, wanted[name].columns, there[name].columns)
            yield from _indexes(name, wanted[name].indexes, there[name].indexes)


def _columns(table: str, wanted: Any, there: Any) -> Iterator[str]:
    for name in [*wanted, *(name for name in there if name not in wanted)]:
        place = f"{table}.{name}"
        if name not in there:
            yield f"{place}: column is missing"
        elif name not in wanted:
            yield f"{place}: column is not declared"
        else:
            for attribute in Column.__slots__:
                yield from _attribute(
                    place, attribute, getattr(wanted[name], attribute), getattr(there[name], attribute)
                )


def _indexes(table: str, wanted: Any, there: Any) -> Iterator[str]:
    for name in sorted(wanted.keys() | there.keys()):
        place = f"{table} index {name}"
        if name not in there:
            yield f"{place}: missing, should be {_index(wanted[name])}"
        elif name not in wanted:
            yield f"{place}: not declared, is {_index(there[name])}"
        elif wanted[name] != there[name]:
            yield f"{place}: is {_index(there[name])}, should be {_index(wanted[name])}"


def _index(index: Any) -> str:
    return f"{index.kind} ({', '.join(index.columns)})"


def _attribute(place: str, attribute: str, wanted: object, there: object) -> Iterator[str]:
    if wanted != there:
        yield f"{place}: {attribute.replace('_', ' ')} is {_shown(there)}, should be {_shown(wanted)}"


def _shown(value: object) -> str:
    if value == "":
        return "''"
    return "none" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
