"""How one setting is declared and read: one row says its variable, its form, its default and its meaning."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any, TypeVar

from runtime.problems import BadSetting

T = TypeVar("T")
# Not like 1e5_: the server would read a number.
_TABLE_PREFIX = re.compile(r"(?!\d+[eE]\d)[A-Za-z0-9_]{1,20}")


def option(variable: str, parse: Callable[[str], T], default: T, help: str, *, secret: bool = False) -> T:
    """Declare a dataclass field that is read from an environment variable.

    A secret may also come from the file that `<variable>_FILE` names, and is never repeated in a message.
    """
    metadata = {"variable": variable, "parse": parse, "help": help, "secret": secret}
    declared: T = field(default=default, metadata=metadata, repr=not secret)
    return declared


def variables_of(cls: type) -> list[Field[Any]]:
    return [f for f in fields(cls) if "variable" in f.metadata]


def read(cls: type[T], environ: Mapping[str, str]) -> T:
    """Build one group of settings from the environment."""
    values = {f.name: _value(f, environ) for f in variables_of(cls)}
    return cls(**values)


def _value(declared: Field[Any], environ: Mapping[str, str]) -> Any:
    variable, is_secret = declared.metadata["variable"], declared.metadata["secret"]
    text = environ.get(variable)
    if is_secret and (path := environ.get(f"{variable}_FILE")):
        if text is not None:
            raise BadSetting(f"{variable} and {variable}_FILE are both set: keep one of them.")
        text = _file_content(f"{variable}_FILE", path)
    if text is None:
        assert declared.default is not MISSING
        return declared.default
    try:
        return declared.metadata["parse"](text.strip())
    except ValueError as error:
        shown = "" if is_secret else f", not {text!r}"
        raise BadSetting(f"{variable} {error}{shown}.") from None


def _file_content(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise BadSetting(f"{variable} names {path}, which is not a text file.") from None
    except OSError as error:
        raise BadSetting(f"{variable} names {path}, which cannot be read: {error.strerror}.") from None


# -- forms a value can have -----------------------------------------------------------------------------


def text(value: str) -> str:
    return value


def number(*, minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", value) or not minimum <= int(value) <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}")
        return int(value)

    return parse


def seconds(*, minimum: float, maximum: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value) or not minimum <= float(value) <= maximum:
            raise ValueError(f"must be a number of seconds from {minimum:g} to {maximum:g}")
        return float(value)

    return parse


def list_of_seconds(*, minimum: float, maximum: float) -> Callable[[str], tuple[float, ...]]:
    one = seconds(minimum=minimum, maximum=maximum)

    def parse(value: str) -> tuple[float, ...]:
        try:
            return tuple(one(part.strip()) for part in value.split(","))
        except ValueError:
            raise ValueError(f"must be numbers of seconds from {minimum:g} to {maximum:g}, as 30,120,600") from None

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value.lower()

    return parse


def switch(value: str) -> bool:
    if value.lower() not in ("on", "off"):
        raise ValueError("must be on or off")
    return value.lower() == "on"


def networks(value: str) -> tuple[str, ...]:
    """Addresses and networks, separated by commas."""
    found = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        try:
            found.append(str(ipaddress.ip_network(part, strict=False)))
        except ValueError:
            raise ValueError("must be addresses or networks, as 192.0.2.7, 198.51.100.0/24") from None
    return tuple(found)


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """An empty value switches the thing off."""
    return lambda value: parse(value) if value else None


def table_prefix(value: str) -> str:
    if not _TABLE_PREFIX.fullmatch(value):
        raise ValueError("must be 1 to 20 letters, digits or underscores, and no number like 1e5 (WordPress uses wp_)")
    return value


def web_address(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", value):
        raise ValueError("must look like https://novels.example")
    return value.rstrip("/")


def master_key(value: str) -> str:
    if len(value) < 32:
        raise ValueError("must have at least 32 characters (for example from: openssl rand -base64 48)")
    return value


def host_and_port(value: str) -> tuple[str, int]:
    match = re.fullmatch(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", value)
    if not match or not 1 <= int(match[2]) <= 65535:
        raise ValueError("must be an address and a port, as 127.0.0.1:9101")
    return match[1].strip("[]"), int(match[2])
