"""Debezium's values → Avro's bytes, and the JSON of defaults. Rules: TYPES.md.

The values are those of `protocols.debezium.values.connected`, which the JSON protocol writes too. What differs here: a DECIMAL is exact,
binary strings are bytes, NULL is null.
"""

from __future__ import annotations

import json
import math
import struct
from fractions import Fraction

from tidemill.protocols.avro import wire
from tidemill.protocols.debezium.values import CURRENT, DATES, EPOCH, Connected, connected, default_cell, default_of
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.types.floats import go_float

TIMES = DATES | {MySQLType.DATETIME, MySQLType.TIMESTAMP}
_BIGINT_MASK = (1 << 64) - 1


def scale_of(column: ColumnInfo) -> int:
    """Return the digits behind the point of a DECIMAL."""
    return max(column.decimal, 0)


def unscaled(column: ColumnInfo, digits: str) -> bytes:
    """Return a DECIMAL in units of its column's last digit, rounded down where it has more digits: two's complement, as short as can be."""
    return wire.shortest(math.floor(Fraction(digits) * 10 ** scale_of(column)))


def encoded(column: ColumnInfo, kind: str, value: Connected) -> bytes:
    """Return Avro's bytes of a value that is not null, in a field of the Connect type `kind`."""
    match value:
        case bool():
            return b"\x01" if value else b"\x00"
        case int() if kind == "string":
            return wire.sized(b"%d" % (value & _BIGINT_MASK))
        case int():
            return wire.varint(value)
        case float():
            return struct.pack("<f" if kind == "float" else "<d", value)
        case bytes():
            return wire.sized(value)
        case str() if kind == "bytes":
            return wire.sized(unscaled(column, value))
        case str():
            return wire.sized(value.encode("utf-8", "surrogateescape"))
    raise TypeError(f"column {column.name}: null has no bytes")


def default_json(column: ColumnInfo, kind: str) -> str | None:
    """Return the default as JSON, bytes as characters with their numbers. None: there is none, or none that can be written."""
    value = _default(column)
    match value:
        case None:
            return None
        case int() if kind == "string" and not isinstance(value, bool):
            return json.dumps(str(value & _BIGINT_MASK))
        case float() if kind == "float":
            return json.dumps(float(go_float(value, 32)))
        case bytes():
            return json.dumps(value.decode("latin-1" if kind == "bytes" else "utf-8", "replace"))
        case str() if kind == "bytes":
            return json.dumps(unscaled(column, value).decode("latin-1"))
    return json.dumps(value)


def _default(column: ColumnInfo) -> Connected:
    """Return the default. The current time is 0 of a DATETIME, and of a TIMESTAMP 1970 where it cannot be NULL, as in Debezium's JSON."""
    found = default_cell(column)
    if found is not None:
        return connected(column, found)
    if default_of(column) is None or column.tp not in TIMES:
        return None
    if column.tp == MySQLType.TIMESTAMP:
        return EPOCH if column.not_null else None
    return 0 if column.not_null or default_of(column) == CURRENT else None
