"""Parsing the text of a value by its MySQL type. The decoders of Canal-JSON, CSV and simple use it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tidemill.tidb.types.floats import to_float32

Value = None | int | float | str | bytes
"""A value as in `open.events`: int for integers, YEAR, BIT, ENUM (index) and SET (mask); float; bytes for all strings; else text."""

_INTEGER = re.compile(r"-?[0-9]{1,20}\Z")
_FLOAT = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?\Z")

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"})
MEMBERS = frozenset({"enum", "set"})
FLOATS = frozenset({"float", "double"})
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
TEXTS = frozenset({"char", "varchar", "var_string", "tinytext", "text", "mediumtext", "longtext"})
OTHERS = frozenset({"decimal", "date", "datetime", "timestamp", "time", "json", "vector"})
KNOWN = INTEGERS | MEMBERS | FLOATS | BINARIES | TEXTS | OTHERS


def base_type(text: str) -> str:
    """Return the name of a type without length and attributes: `int(10) unsigned` → `int`."""
    return re.split(r"[( ]", text, maxsplit=1)[0].lower()


def parse_value(kind: str, text: str, binary: Callable[[str], bytes]) -> Value:
    """Parse the text of a value of this base type. `binary` decodes binary strings. Raises ValueError."""
    if kind in TEXTS:
        return text.encode("utf-8", "surrogateescape")
    if kind in INTEGERS:
        return parse_integer(text)
    if kind in MEMBERS:
        return int(text) if _INTEGER.match(text) else text
    if kind in FLOATS:
        if not _FLOAT.match(text):
            raise ValueError(f"expected a number, found {text[:60]!r}")
        number = float(text)
        number = to_float32(number) if kind == "float" else number
        if not math.isfinite(number):
            raise ValueError(f"{text[:60]!r} does not fit a {kind}")
        return number
    return binary(text) if kind in BINARIES else text


def parse_integer(text: str) -> int:
    """Parse an integer of 64 bits, signed or not. Raises ValueError."""
    number = int(text) if _INTEGER.match(text) else None
    if number is None or not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"expected an integer, found {text[:60]!r}")
    return number
