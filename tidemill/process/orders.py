"""What a process is started with: a frozen dataclass, which its parent writes to its stdin as a line of JSON. Nothing of it is on a command
line or in an environment, where others could read it.

    {"do": "warm", "order": {…}}     load what the order will need, and wait: for processes that stand by
    {"do": "begin", "order": {…}}    begin

What comes after `begin` is for the program itself: see `lifeline`. If stdin ends before, the process ends with 0.

Fields are texts, numbers, None, paths, enums, bytes, tuples, mappings and other such dataclasses. A class that is none of these has
`to_plain` and `from_plain`.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tidemill.errors import MalformedMessage
from tidemill.process.lifeline import STDIN

T = TypeVar("T")


def warm(order: object) -> bytes:
    """Return the line that lets a process load what an order needs."""
    return _line("warm", order)


def begin(order: object) -> bytes:
    """Return the line that lets a process begin."""
    return _line("begin", order)


def _line(do: str, order: object) -> bytes:
    return json.dumps({"do": do, "order": to_plain(order)}, separators=(",", ":")).encode() + b"\n"


def take(kind: type[T], load: Callable[[T], object] = lambda order: None, check: Callable[[], None] = lambda: None) -> T:
    """Wait for `begin`, and return its order. `load` is called for `warm`. `check` is called every few seconds while nothing comes, and
    raises what makes it useless to wait. Raises MalformedMessage."""
    while line := STDIN.next(check):
        try:
            message = json.loads(line)
            do = message["do"]
            order: T = from_plain(kind, message["order"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise MalformedMessage(f"this process is started with an order that it cannot read: {error}") from error
        if do == "begin":
            return order
        load(order)
    sys.exit(0)


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return [to_plain(one) for one in value]
        case Mapping():
            return {str(name): to_plain(one) for name, one in value.items()}
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    return value.to_plain()


def from_plain(kind: Any, found: Any) -> Any:
    """Return the value of a type. Raises TypeError, ValueError, KeyError, AttributeError."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return found
    if origin in (Union, types.UnionType):
        (one,) = (member for member in inner if member is not types.NoneType)
        return None if found is None else from_plain(one, found)
    if origin is tuple:
        kinds = inner[:1] * len(found) if inner[-1:] == (...,) else inner
        return tuple(from_plain(one, value) for one, value in zip(kinds, found, strict=True))
    if origin is not None:  # a mapping
        return {from_plain(inner[0], name): from_plain(inner[1], value) for name, value in found.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        needed = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
        if found.keys() - hints.keys() or needed - found.keys():
            raise ValueError(f"its fields are not those of {kind.__name__}")
        return kind(**{name: from_plain(hints[name], value) for name, value in found.items()})
    if kind is bytes:
        return bytes.fromhex(found)
    if issubclass(kind, Enum | Path):
        return kind(found)
    if hasattr(kind, "from_plain"):
        return kind.from_plain(found)
    if not isinstance(found, int | float if kind is float else kind):
        raise TypeError(f"a {type(found).__name__} where a {kind.__name__} belongs")
    return found


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
