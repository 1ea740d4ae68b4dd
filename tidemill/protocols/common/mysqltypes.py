"""MySQL's types with their lengths, as the Canal protocols send them."""

from __future__ import annotations

from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo
from tidemill.tidb.schema.typenames import DEFAULT_LENGTHS, type_name

_WITH_LENGTH = frozenset(
    {
        MySQLType.BIT, MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG, MySQLType.LONGLONG, MySQLType.VARCHAR,
        MySQLType.STRING, MySQLType.VAR_STRING,
    }
)  # fmt: skip


def full_type(column: ColumnInfo) -> str:
    """Return the type with length, fraction and elements: `int(11)`, `decimal(10,2)`, `enum('a','b')`, `datetime(3)`. No attributes."""
    return type_name(column) + _suffix(column)


def _suffix(column: ColumnInfo) -> str:
    length = column.flen if column.flen != -1 else DEFAULT_LENGTHS.get(column.tp, -1)
    if column.tp in (MySQLType.ENUM, MySQLType.SET):
        return "('" + "','".join(e.replace("'", "''") for e in column.elems) + "')"
    if column.tp in (MySQLType.TIMESTAMP, MySQLType.DATETIME, MySQLType.DURATION):
        return f"({column.decimal})" if column.decimal > 0 else ""
    if column.tp in (MySQLType.FLOAT, MySQLType.DOUBLE):
        return f"({length},{column.decimal})" if column.decimal != -1 else ""
    if column.tp == MySQLType.NEWDECIMAL:
        return f"({length},{max(column.decimal, 0)})"
    if column.tp in _WITH_LENGTH:
        return f"({length})"
    if column.tp == MySQLType.YEAR:
        return f"({column.flen})"
    if column.tp == MySQLType.VECTOR:
        return f"({column.flen})" if column.flen != -1 else ""
    return ""
