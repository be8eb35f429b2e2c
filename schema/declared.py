"""The schema that the migrations declare, read from their SQL by sqlglot."""

import functools
from collections.abc import Iterable

from sqlglot import exp

from schema import migrations
from schema.dialect import IDENTIFIER_COLLATION, Dialect
from schema.migrations import Migration
from schema.model import Column, Index, Schema, Table, plain_default
from schema.prefix import WRITTEN

_TYPES_WITHOUT_WIDTH = {"tinyint", "smallint", "mediumint", "int", "bigint"}


def tables(dialect: Dialect, *, prefix: str) -> dict[str, Table]:
    """Every table of ours, as this server and this prefix should have it."""
    return {
        prefix + name.removeprefix(WRITTEN): _adapted(table, dialect)
        for name, table in fold(migrations.available()).items()
        if name.startswith(f"{WRITTEN}novel_")
    }


def core_columns(*, prefix: str) -> dict[str, set[str]]:
    """The columns we need in WordPress's own tables. How WordPress declares them is WordPress's business."""
    return {
        prefix + name.removeprefix(WRITTEN): set(table.columns)
        for name, table in fold(migrations.available()).items()
        if not name.startswith(f"{WRITTEN}novel_")
    }


@functools.cache
def fold(all_migrations: tuple[Migration, ...]) -> Schema:
    """What the migrations leave behind, one after the other."""
    schema: dict[str, Table] = {}
    for migration in all_migrations:
        for statement in migration.statements:
            tree = migrations.parse(statement)
            if isinstance(tree, exp.Create):
                schema.setdefault(tree.this.this.name, _created(tree))
            else:
                schema[tree.this.name] = _altered(schema[tree.this.name], tree)
    return schema


def _created(tree: exp.Create) -> Table:
    properties = tree.args["properties"].expressions
    collation = next(p.this.name for p in properties if isinstance(p, exp.CollateProperty))
    engine = next(p.this.name for p in properties if isinstance(p, exp.EngineProperty))
    return _with(Table({}, {}, engine, collation), tree.this.expressions)


def _altered(table: Table, tree: exp.Alter) -> Table:
    parts: list[exp.Expression] = []
    for action in tree.args["actions"]:
        parts += action.expressions if isinstance(action, exp.AddConstraint) else [action]
    return _with(table, parts)


def _with(table: Table, parts: Iterable[exp.Expression]) -> Table:
    columns, indexes = dict(table.columns), dict(table.indexes)
    for part in parts:
        if isinstance(part, exp.ColumnDef):
            columns[part.name] = _column(part, table.collation)
        elif isinstance(part, exp.PrimaryKey):
            indexes["PRIMARY"] = Index("PRIMARY", _index_columns(part.expressions))
        elif isinstance(part, exp.UniqueColumnConstraint):
            indexes[part.this.this.name] = Index("UNIQUE", _index_columns(part.this.expressions))
        elif isinstance(part, exp.IndexColumnConstraint):
            indexes[part.this.name] = Index(part.args.get("kind") or "KEY", _index_columns(part.expressions))
        else:
            raise TypeError(f"a migration has a part that the schema check cannot read: {part.sql('mysql')}")
    return Table(columns, indexes, table.engine, table.collation)


def _column(definition: exp.ColumnDef, table_collation: str) -> Column:
    constraints = {type(constraint.kind): constraint.kind for constraint in definition.args["constraints"]}
    type_name = _type(definition.args["kind"])
    is_text = type_name.partition("(")[0] in ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
    collate = constraints.get(exp.CollateColumnConstraint)
    not_null = constraints.get(exp.NotNullColumnConstraint)
    default = constraints.get(exp.DefaultColumnConstraint)
    return Column(
        type=type_name,
        nullable=not_null is None or bool(not_null.args.get("allow_null")),
        default=None if default is None or isinstance(default.this, exp.Null) else plain_default(default.this.name),
        collation=(collate.this.name if collate else table_collation) if is_text else None,
        auto_increment=exp.AutoIncrementColumnConstraint in constraints,
    )


def _type(data_type: exp.DataType) -> str:
    text = data_type.sql("mysql").lower()
    name, _, rest = text.partition("(")
    if name in _TYPES_WITHOUT_WIDTH and rest:
        return name + rest.partition(")")[2]
    return text.replace(", ", ",")


def _index_columns(parts: Iterable[exp.Expression]) -> tuple[str, ...]:
    names = []
    for part in parts:
        if isinstance(part, exp.Ordered):
            names.append(part.this.name + (" DESC" if part.args.get("desc") else ""))
        elif isinstance(part, exp.ColumnPrefix):
            names.append(f"{part.this.name}({part.expression.name})")
        else:
            names.append(part.name)
    return tuple(names)


def _adapted(table: Table, dialect: Dialect) -> Table:
    """The table as this server can have it: its name for our collation, descending parts where it knows them."""
    columns = {
        name: Column(
            column.type,
            column.nullable,
            column.default,
            dialect.identifier_collation if column.collation == IDENTIFIER_COLLATION else column.collation,
            column.auto_increment,
        )
        for name, column in table.columns.items()
    }
    indexes = table.indexes
    if not dialect.has_descending_indexes:
        indexes = {
            name: Index(index.kind, tuple(column.removesuffix(" DESC") for column in index.columns))
            for name, index in indexes.items()
        }
    return Table(columns, indexes, table.engine, table.collation)
