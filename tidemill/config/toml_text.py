"""TOML as text: read with a bound, written as `tomllib` reads it. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TEXTS = re.compile(
    r'''(?s:"""(?:[^"\\]|\\.?|"(?!""))*+(?:"""|\Z)|\'{3}(?:[^\']|\'(?!\'\'))*+(?:\'{3}|\Z))|"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'|\#[^\n]*+'''
)
"""Strings and comments: dots within them are not those of a key. One without an end goes to the end of the text: to look for it from each
of its quotes would cost quadratic time."""
_DEEP_KEY = re.compile(r"(?:\.[^.\n,=\[\]{}]*+){64}")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises RecursionError, ValueError also for a key of 64 dots: they cost quadratic time."""
    if _DEEP_KEY.search(_TEXTS.sub("", text)):
        raise ValueError("a key is nested too deep")
    return tomllib.loads(text)


def toml_text(data: Mapping[str, Any]) -> str:
    """Return the text of a table with texts, booleans, numbers, lists and tables. A value None is left out."""
    return "\n".join(_table(data, "")).lstrip("\n") + "\n"


def _table(data: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the lines of a table: its values first, then the tables in it."""
    below = {}
    for key, value in data.items():
        if isinstance(value, Mapping) or (_is_tables(value) and value):
            below[key] = value
        elif value is not None:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in below.items():
        inner = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, Mapping):
            yield f"\n[{inner}]"
            yield from _table(value, inner)
        else:
            for item in value:
                yield f"\n[[{inner}]]"
                yield from _table(item, inner)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items()) + "}"
    return _text(str(value))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
