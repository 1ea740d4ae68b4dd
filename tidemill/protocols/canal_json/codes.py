"""Numbers and words of Canal-JSON."""

from __future__ import annotations

import enum

from tidemill.tidb.schema.codes import MySQLType


class JavaType(enum.IntEnum):
    """`sqlType` of a column: java.sql.Types."""

    BIT = -7
    TINYINT = -6
    BIGINT = -5
    CHAR = 1
    DECIMAL = 3
    INTEGER = 4
    SMALLINT = 5
    REAL = 7
    DOUBLE = 8
    VARCHAR = 12
    DATE = 91
    TIME = 92
    TIMESTAMP = 93
    BLOB = 2004
    CLOB = 2005


JAVA_TYPES: dict[int, JavaType] = {
    MySQLType.TINY: JavaType.TINYINT,
    MySQLType.SHORT: JavaType.SMALLINT,
    MySQLType.LONG: JavaType.INTEGER,
    MySQLType.INT24: JavaType.INTEGER,
    MySQLType.LONGLONG: JavaType.BIGINT,
    MySQLType.FLOAT: JavaType.REAL,
    MySQLType.DOUBLE: JavaType.DOUBLE,
    MySQLType.NEWDECIMAL: JavaType.DECIMAL,
    MySQLType.DATE: JavaType.DATE,
    MySQLType.NEWDATE: JavaType.DATE,
    MySQLType.DURATION: JavaType.TIME,
    MySQLType.DATETIME: JavaType.TIMESTAMP,
    MySQLType.TIMESTAMP: JavaType.TIMESTAMP,
    MySQLType.YEAR: JavaType.VARCHAR,
    MySQLType.ENUM: JavaType.INTEGER,
    MySQLType.SET: JavaType.BIT,
    MySQLType.BIT: JavaType.BIT,
    MySQLType.STRING: JavaType.CHAR,
    **dict.fromkeys((MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB, MySQLType.LONG_BLOB), JavaType.CLOB),
}
"""Types of text columns, and of numbers below the limits of PROMOTED. All other types are VARCHAR."""

BINARY_STRINGS = frozenset(
    {
        MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.STRING, MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB,
        MySQLType.LONG_BLOB,
    }
)  # fmt: skip
"""These are BLOB where their charset is binary."""

PROMOTED: dict[int, tuple[int, JavaType]] = {
    MySQLType.TINY: (1 << 7, JavaType.SMALLINT),
    MySQLType.SHORT: (1 << 15, JavaType.INTEGER),
    MySQLType.LONG: (1 << 31, JavaType.BIGINT),
    MySQLType.LONGLONG: (1 << 63, JavaType.DECIMAL),
}
"""Unsigned types: from this number on a value does not fit the signed Java type and gets the next larger one. MEDIUMINT always fits."""


class MessageType(enum.Enum):
    """`type` of a message that is not a DDL."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    WATERMARK = "TIDB_WATERMARK"
