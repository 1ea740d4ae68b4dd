"""Members of TiDB's descriptions, read with the type that they must have: what has another is told at once, not where it is used.

A member that is absent, or null, has its type's zero value. All raise ValueError naming the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

Json = Mapping[str, Any]

_LEAST, _LARGEST = -(1 << 63), (1 << 64) - 1  # numbers of 64 bits, signed or not


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    raise ValueError(f"{name} is {repr(value)[:60]}, expected {expected}")


def integer(data: Json, name: str, missing: int = 0) -> int:
    """A number of at most 64 bits."""
    value = data.get(name)
    if value is None:
        return missing
    if not isinstance(value, int) or isinstance(value, bool) or not _LEAST <= value <= _LARGEST:
        _refuse(name, value, "a number of 64 bits")
    return int(value)


def identifier(data: Json, name: str) -> int:
    """A number that has to be there and is not negative: an id."""
    found = integer(data, name, -1)
    if found < 0:
        _refuse(name, data.get(name), "a number from 0 on")
    return found


def text(data: Json, name: str) -> str:
    """A text."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        _refuse(name, value, "a text")
    return value


def flag(data: Json, name: str) -> bool:
    """true or false."""
    value = data.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        _refuse(name, value, "true or false")
    return value


def members(data: Json, name: str) -> list[Json]:
    """A list of objects."""
    value = _list(data, name)
    for one in value:
        if not isinstance(one, Mapping):
            _refuse(name, one, "a list of objects")
    return value


def texts(data: Json, name: str) -> tuple[str, ...]:
    """A list of texts."""
    value = _list(data, name)
    for one in value:
        if not isinstance(one, str):
            _refuse(name, one, "a list of texts")
    return tuple(value)


def integers(data: Json, name: str) -> tuple[int, ...]:
    """A list of numbers."""
    value = _list(data, name)
    for one in value:
        if not isinstance(one, int) or isinstance(one, bool) or not _LEAST <= one <= _LARGEST:
            _refuse(name, one, "a list of numbers")
    return tuple(value)


def _list(data: Json, name: str) -> list[Any]:
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        _refuse(name, value, "a list")
    return list(value)


def member(data: Json, name: str) -> Json | None:
    """An object, or None."""
    value = data.get(name)
    if value is not None and not isinstance(value, Mapping):
        _refuse(name, value, "an object")
    return value


def plain(data: Json, name: str) -> Any:
    """A text or a number, as defaults are, or None."""
    value = data.get(name)
    if value is not None and not isinstance(value, str | int | float):
        _refuse(name, value, "a text or a number")
    return value
