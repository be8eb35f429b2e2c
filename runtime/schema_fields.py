"""JSON Schema as people read it: the fields of a type, the limits of each, and an example of the whole.

Understands what msgspec writes: references, `anyOf`, `enum`, lists and maps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

Schema = Mapping[str, Any]

_RANGES = {
    "length": ("minLength", "maxLength"),
    "items": ("minItems", "maxItems"),
    "range": ("minimum", "maximum"),
}
_LIMITS = {"more than": "exclusiveMinimum", "less than": "exclusiveMaximum", "multiple of": "multipleOf"}
_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What a value is called, may be and means."""

    within: str = ""
    """What leads to it: `items[].`"""
    name: str
    type: str
    required: bool = False
    description: str
    rules: Sequence[tuple[str, str]] = ()
    """Pairs of what is limited and how: ("length", "1 – 191")."""
    is_alternative: bool = False
    """Not a field, but the head of those that the value has if it is of this type: it may be of another."""


class NoExample(Exception):
    """A required part of the schema has no example."""


@dataclass(frozen=True, slots=True)
class SchemaFields:
    """Reads schemas that refer to these components."""

    components: Mapping[str, Schema]

    def of(self, schema: Schema) -> Iterator[Field]:
        """The fields of an object and of the objects inside it."""
        held, suffix = self._held(schema)
        yield from self._inside(held, within=f"{suffix}." if suffix else "", above=())

    def named(self, name: str, schema: Schema, *, required: bool, description: str = "") -> Field:
        """A value on its own, such as a parameter."""
        held = self._options(self._held(schema)[0])
        parts = (schema, *self._options(schema), *(held if len(held) == 1 else ()))
        told = (part.get("description", "") for part in parts)
        return Field(
            name=name,
            type=self.type(schema),
            required=required,
            description=description or next(filter(None, told), ""),
            rules=tuple(dict.fromkeys(self._rules(schema))),
        )

    def type(self, schema: Schema) -> str:
        schema = self._resolved(schema)
        if "anyOf" in schema:
            return " or ".join(dict.fromkeys(self.type(option) for option in schema["anyOf"]))
        if "properties" in schema:
            return str(schema.get("title", "object"))
        if "enum" in schema and "type" not in schema:
            return " or ".join(dict.fromkeys(_TYPE_NAMES[type(value)] for value in schema["enum"]))
        kind = str(schema.get("type", "anything"))
        if kind == "array" and isinstance(items := schema.get("items"), dict):
            return f"list of {self.type(items)}"
        if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
            return f"map of {self.type(values)}"
        return f"{kind}, {schema['format']}" if "format" in schema else kind

    def example(self, schema: Schema, *, above: tuple[str, ...] = ()) -> Any:
        """A value put together from the examples of its parts. Optional ones are there if they have their own."""
        schema = self._resolved(schema)
        for key in ("examples", "enum"):
            if key in schema:
                return schema[key][0]
        if "anyOf" in schema:
            return self.example(schema["anyOf"][0], above=above)
        if isinstance(items := schema.get("items"), dict):
            return [self.example(items, above=above)]
        title = schema.get("title", "")
        if "properties" not in schema or (title and title in above):
            raise NoExample
        return {
            name: self.example(value, above=(*above, title))
            for name, value in schema["properties"].items()
            if name in schema.get("required", ()) or any("examples" in option for option in self._options(value))
        }

    def _inside(self, schema: Schema, *, within: str, above: tuple[str, ...]) -> Iterator[Field]:
        objects = [option for option in self._options(schema) if "properties" in option]
        for found in objects:
            title = found.get("title", "")
            if title and title in above:
                continue  # it holds itself, and its fields are listed above
            if len(objects) > 1:
                yield Field(
                    name=within.removesuffix("."),
                    type=self.type(found),
                    description=found.get("description", ""),
                    is_alternative=True,
                )
            for name, value in found["properties"].items():
                yield replace(self.named(name, value, required=name in found.get("required", ())), within=within)
                held, suffix = self._held(value)
                yield from self._inside(held, within=f"{within}{name}{suffix}.", above=(*above, title))

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self.components[schema["$ref"].rpartition("/")[2]], **beside}

    def _options(self, schema: Schema) -> list[Schema]:
        """What a value may be, other than null."""
        schema = self._resolved(schema)
        if "anyOf" in schema:
            return [found for option in schema["anyOf"] for found in self._options(option)]
        return [] if schema.get("type") == "null" else [schema]

    def _held(self, schema: Schema) -> tuple[Schema, str]:
        """What a list or a map holds, and how that is written after its name. Any other value holds itself."""
        for option in self._options(schema):
            for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
                if isinstance(option.get(key), dict):
                    held, deeper = self._held(option[key])
                    return held, suffix + deeper
        return schema, ""

    def _rules(self, schema: Schema) -> Iterator[tuple[str, str]]:
        for option in self._options(schema):
            for label, (least, most) in _RANGES.items():
                if least in option or most in option:
                    yield label, _span(option.get(least), option.get(most))
            if "pattern" in option:
                yield "pattern", option["pattern"]
            yield from ((label, _json(option[key])) for label, key in _LIMITS.items() if key in option)
            if values := option.get("enum"):
                yield "one of" if len(values) > 1 else "always", ", ".join(map(_json, values))
            if isinstance(items := option.get("items"), dict):
                yield from ((f"each {label}", value) for label, value in self._rules(items))
        if (default := schema.get("default")) is not None:  # that what may be null is null by default, is no news
            yield "default", _json(default)


def _span(least: Any, most: Any) -> str:
    if least is None or most is None:
        return f"≥ {least}" if most is None else f"≤ {most}"
    return str(least) if least == most else f"{least} – {most}"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
