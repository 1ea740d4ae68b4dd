"""Typed reading of members of TiDB's JSON descriptions. A member of the wrong type is an error here, not later where it is used.

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
    """Return a member that is a number of at most 64 bits."""
    value = data.get(name)
    if value is None:
        return missing
    if not isinstance(value, int) or isinstance(value, bool) or not _LEAST <= value <= _LARGEST:
        _refuse(name, value, "a number of 64 bits")
    return int(value)


def identifier(data: Json, name: str) -> int:
    """Return an id: a number that is present and not negative."""
    found = integer(data, name, -1)
    if found < 0:
        _refuse(name, data.get(name), "a number from 0 on")
    return found


def text(data: Json, name: str) -> str:
    """Return a member that is a string."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        _refuse(name, value, "a text")
    return value


def flag(data: Json, name: str) -> bool:
    """Return a member that is true or false."""
    value = data.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        _refuse(name, value, "true or false")
    return value


def members(data: Json, name: str) -> list[Json]:
    """Return a member that is a list of objects."""
    value = _list(data, name)
    for one in value:
        if not isinstance(one, Mapping):
            _refuse(name, one, "a list of objects")
    return value


def texts(data: Json, name: str) -> tuple[str, ...]:
    """Return a member that is a list of strings."""
    value = _list(data, name)
    for one in value:
        if not isinstance(one, str):
            _refuse(name, one, "a list of texts")
    return tuple(value)


def integers(data: Json, name: str) -> tuple[int, ...]:
    """Return a member that is a list of numbers."""
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
    """Return a member that is an object, or None."""
    value = data.get(name)
    if value is not None and not isinstance(value, Mapping):
        _refuse(name, value, "an object")
    return value


def plain(data: Json, name: str) -> Any:
    """Return a member that is a string or a number, as defaults are, or None."""
    value = data.get(name)
    if value is not None and not isinstance(value, str | int | float):
        _refuse(name, value, "a text or a number")
    return value
