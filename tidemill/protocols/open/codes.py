"""Numbers of the Open Protocol. A number without a name here passes through everything as a plain int."""

from __future__ import annotations

import enum
from typing import TypeVar

VERSION = 1
"""The version word at the start of a message key."""


class EventType(enum.IntEnum):
    """`t` of a key."""

    ROW = 1
    DDL = 2
    RESOLVED = 3


class ColumnType(enum.IntEnum):
    """`t` of a column: MySQL's type codes."""

    TINYINT = 1
    SMALLINT = 2
    INT = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    BIGINT = 8
    MEDIUMINT = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15  # and VARBINARY
    BIT = 16
    VECTOR = 225
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    TINYTEXT = 249  # and TINYBLOB
    MEDIUMTEXT = 250  # and MEDIUMBLOB
    LONGTEXT = 251  # and LONGBLOB
    TEXT = 252  # and BLOB
    VAR_STRING = 253
    CHAR = 254  # and BINARY
    GEOMETRY = 255


class ColumnFlag(enum.IntFlag):
    """`f` of a column."""

    BINARY = 1  # of the charset "binary": all types but text ones, ENUM and SET
    HANDLE_KEY = 2
    GENERATED = 4
    PRIMARY_KEY = 8
    UNIQUE_KEY = 16
    MULTIPLE_KEY = 32
    NULLABLE = 64
    UNSIGNED = 128


class DdlType(enum.IntEnum):
    """`t` of a DDL: TiDB's action codes, as far as TiCDC sends them."""

    CREATE_SCHEMA = 1
    DROP_SCHEMA = 2
    CREATE_TABLE = 3
    DROP_TABLE = 4
    ADD_COLUMN = 5
    DROP_COLUMN = 6
    ADD_INDEX = 7
    DROP_INDEX = 8
    ADD_FOREIGN_KEY = 9
    DROP_FOREIGN_KEY = 10
    TRUNCATE_TABLE = 11
    MODIFY_COLUMN = 12
    REBASE_AUTO_ID = 13
    RENAME_TABLE = 14
    SET_DEFAULT_VALUE = 15
    SHARD_ROW_ID = 16
    MODIFY_TABLE_COMMENT = 17
    RENAME_INDEX = 18
    ADD_TABLE_PARTITION = 19
    DROP_TABLE_PARTITION = 20
    CREATE_VIEW = 21
    MODIFY_TABLE_CHARSET = 22
    TRUNCATE_TABLE_PARTITION = 23
    DROP_VIEW = 24
    RECOVER_TABLE = 25
    MODIFY_SCHEMA_CHARSET = 26
    ADD_PRIMARY_KEY = 32
    DROP_PRIMARY_KEY = 33
    ALTER_INDEX_VISIBILITY = 41
    EXCHANGE_PARTITION = 42
    RENAME_TABLES = 47
    CREATE_TABLES = 60
    MULTI_SCHEMA_CHANGE = 61
    REORGANIZE_PARTITION = 64
    ALTER_TTL = 65
    REMOVE_TTL = 67
    ALTER_PARTITIONING = 71
    REMOVE_PARTITIONING = 72


_Code = TypeVar("_Code", bound=enum.IntEnum)


def named(codes: type[_Code], number: int) -> _Code | int:
    """The code of a number, or the number itself where it has no name."""
    try:
        return codes(number)
    except ValueError:
        return number


TEXT_BLOBS = frozenset({ColumnType.TINYTEXT, ColumnType.MEDIUMTEXT, ColumnType.LONGTEXT, ColumnType.TEXT})
"""Types whose values are base64."""

STRINGS = frozenset({ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.CHAR})
"""Types whose values are text, or Go's quoted bytes where the BINARY flag is set."""

FLOATS = frozenset({ColumnType.FLOAT, ColumnType.DOUBLE})

INTEGERS = frozenset(
    {
        ColumnType.TINYINT, ColumnType.SMALLINT, ColumnType.INT, ColumnType.MEDIUMINT, ColumnType.BIGINT, ColumnType.YEAR,
        ColumnType.BIT, ColumnType.ENUM, ColumnType.SET,
    }
)  # fmt: skip
"""Types whose values are JSON integers."""
