"""Names of MySQL's types as TiDB prints them, default lengths, and the attributes that follow a type."""

from __future__ import annotations

from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo

_NAMES: dict[int, str] = {
    0: "unspecified",
    MySQLType.TINY: "tinyint",
    MySQLType.SHORT: "smallint",
    MySQLType.LONG: "int",
    MySQLType.FLOAT: "float",
    MySQLType.DOUBLE: "double",
    6: "null",
    MySQLType.TIMESTAMP: "timestamp",
    MySQLType.LONGLONG: "bigint",
    MySQLType.INT24: "mediumint",
    MySQLType.DATE: "date",
    MySQLType.DURATION: "time",
    MySQLType.DATETIME: "datetime",
    MySQLType.YEAR: "year",
    MySQLType.NEWDATE: "date",
    MySQLType.VARCHAR: "varchar",
    MySQLType.BIT: "bit",
    MySQLType.VECTOR: "vector",
    MySQLType.JSON: "json",
    MySQLType.NEWDECIMAL: "decimal",
    MySQLType.ENUM: "enum",
    MySQLType.SET: "set",
    MySQLType.TINY_BLOB: "tinytext",
    MySQLType.MEDIUM_BLOB: "mediumtext",
    MySQLType.LONG_BLOB: "longtext",
    MySQLType.BLOB: "text",
    MySQLType.VAR_STRING: "var_string",
    MySQLType.STRING: "char",
    255: "geometry",
}
_BINARY_NAMES: dict[int, str] = {
    MySQLType.TINY_BLOB: "tinyblob",
    MySQLType.MEDIUM_BLOB: "mediumblob",
    MySQLType.LONG_BLOB: "longblob",
    MySQLType.BLOB: "blob",
    MySQLType.VARCHAR: "varbinary",
    MySQLType.STRING: "binary",
}
DEFAULT_LENGTHS: dict[int, int] = {
    MySQLType.BIT: 1, MySQLType.TINY: 4, MySQLType.SHORT: 6, MySQLType.INT24: 9, MySQLType.LONG: 11, MySQLType.LONGLONG: 20,
    MySQLType.NEWDECIMAL: 10, MySQLType.STRING: 1, MySQLType.VARCHAR: 5, MySQLType.VAR_STRING: 5, MySQLType.FLOAT: 12,
    MySQLType.DOUBLE: 22,
}  # fmt: skip
"""The length that TiDB shows for a column without its own."""


def type_name(column: ColumnInfo) -> str:
    """Return the type without length or attributes: `int`, `varbinary`, `text`."""
    if column.is_binary and column.tp in _BINARY_NAMES:
        return _BINARY_NAMES[column.tp]
    return _NAMES.get(column.tp, "unspecified")


def attributes(column: ColumnInfo) -> str:
    """Return ` unsigned` (not for BIT and YEAR) and ` zerofill`, as they follow a type."""
    if column.tp in (MySQLType.BIT, MySQLType.YEAR):
        return ""
    return (" unsigned" if column.unsigned else "") + (" zerofill" if column.zerofill else "")
