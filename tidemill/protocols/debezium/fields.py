"""The field of a column in a schema block: its Kafka Connect type, its meaning for Debezium, and its default. Rules: TYPES.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.protocols.debezium.text import Json, compact, text
from tidemill.protocols.debezium.values import EPOCH, MILLISECOND_FSP, NULL, STRINGS, default_of, null_text
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.typenames import type_name
from tidemill.tidb.types.floats import go_float


class Kind(NamedTuple):
    """A type of Kafka Connect, and the name of what it means. `versioned`: the name has a version, which is 1."""

    type: str
    name: str = ""
    versioned: bool = True


_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
_KINDS: dict[int, Kind] = {
    **dict.fromkeys(STRINGS, Kind("string")),
    **dict.fromkeys((MySQLType.DATE, MySQLType.NEWDATE), Kind("int32", _TIME + "Date")),
    MySQLType.TIMESTAMP: Kind("string", _TIME + "ZonedTimestamp"),
    MySQLType.DURATION: Kind("int64", _TIME + "MicroTime"),
    MySQLType.YEAR: Kind("int32", _TIME + "Year"),
    MySQLType.ENUM: Kind("string", _DATA + "Enum"),
    MySQLType.SET: Kind("string", _DATA + "EnumSet"),
    MySQLType.JSON: Kind("string", _DATA + "Json"),
    MySQLType.VECTOR: Kind("string", _DATA + "TiDBVectorFloat32", versioned=False),
    MySQLType.TINY: Kind("int16"),
    MySQLType.INT24: Kind("int32"),
    MySQLType.LONGLONG: Kind("int64"),
    MySQLType.DOUBLE: Kind("double"),
    MySQLType.NEWDECIMAL: Kind("double"),
}
_NUMBERS = frozenset({MySQLType.FLOAT, MySQLType.DOUBLE, MySQLType.NEWDECIMAL})
_AS_TEXT = STRINGS | {MySQLType.ENUM, MySQLType.SET, MySQLType.JSON, MySQLType.VECTOR}
_NO_SUFFIX = frozenset({MySQLType.YEAR, MySQLType.BIT, MySQLType.VARCHAR, MySQLType.STRING, MySQLType.NEWDECIMAL})


def kind_of(column: ColumnInfo) -> Kind | None:
    """Return the type of a column. None: TiDB has no values of it."""
    match column.tp:
        case MySQLType.BIT:
            return Kind("boolean") if column.flen == 1 else Kind("bytes", _DATA + "Bits")
        case MySQLType.DATETIME:
            return Kind("int64", _TIME + ("Timestamp" if column.decimal <= MILLISECOND_FSP else "MicroTimestamp"))
        case MySQLType.SHORT:
            return Kind("int32" if column.unsigned else "int16")
        case MySQLType.LONG:
            return Kind("int64" if column.unsigned else "int32")
        case MySQLType.FLOAT:
            return Kind("float" if column.decimal == -1 else "double")
    return _KINDS.get(column.tp)


def field(column: ColumnInfo, *, extension: bool) -> bytes:
    """Return the schema of a column as a JSON object. `extension`: with TiDB's type."""
    members: dict[str, Json] = {"tidb_type": tidb_type(column)} if extension else {}
    kind = kind_of(column)
    if kind is None:
        return compact(members)
    members |= {"type": kind.type, "optional": not column.not_null}
    if kind.name:
        members |= {"name": kind.name} | ({"version": 1} if kind.versioned else {})
    if found := parameters_of(column):
        members["parameters"] = found
    members["field"] = column.name
    default = _default(column)
    return compact(members) if default is None else compact(members)[:-1] + b',"default":' + default + b"}"


def fields(columns: Sequence[ColumnInfo], *, extension: bool) -> bytes:
    """Return the schemas of columns, joined by commas."""
    return b",".join(field(column, extension=extension) for column in columns)


def parameters_of(column: ColumnInfo) -> dict[str, str]:
    """Return the parameters of a column's schema: the bits of a BIT, the elements of ENUM and SET."""
    match column.tp:
        case MySQLType.BIT if column.flen != 1:
            return {"length": str(max(column.flen, 1))}
        case MySQLType.ENUM:
            return {"allowed": ",".join(map(_escaped, column.elems))}
        case MySQLType.SET:
            return {"allowed": ",".join(column.elems)}
    return {}


def _escaped(element: str) -> str:
    return element.replace(",", "\\,").replace("\\'", "'").replace("''", "'")


def _default(column: ColumnInfo) -> bytes | None:
    """Return the default, or None. A time that is not a moment is 0 or 1970, where the column cannot be NULL."""
    default = default_of(column)
    if default is None:
        return None
    if column.tp in _AS_TEXT and isinstance(default, str):
        return text(default)
    if column.tp in _NUMBERS:
        try:
            return go_float(float(str(default))).encode()
        except ValueError:
            return None
    found = null_text(column)
    if found != NULL:
        return found
    if not column.not_null:
        return None
    return b'"' + EPOCH.encode() + b'"' if column.tp == MySQLType.TIMESTAMP else b"0"


def tidb_type(column: ColumnInfo) -> str:
    """Return the name of a column's type in TiDB."""
    plain = column.tp in _NO_SUFFIX or not column.unsigned
    return type_name(column) + ("" if plain else " unsigned")
