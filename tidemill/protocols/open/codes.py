"""Numbers of the Open Protocol. A number without a name here stays a plain int."""

from __future__ import annotations

import enum
from typing import TypeVar

from tidemill.tidb.schema.codes import Action, MySQLType

VERSION = 1
"""The version word at the start of a message key."""


class EventType(enum.IntEnum):
    """`t` of a key."""

    ROW = 1
    DDL = 2
    RESOLVED = 3


class ColumnType(enum.IntEnum):
    """`t` of a column: MySQL's type codes under their SQL names."""

    TINYINT = MySQLType.TINY
    SMALLINT = MySQLType.SHORT
    INT = MySQLType.LONG
    FLOAT = MySQLType.FLOAT
    DOUBLE = MySQLType.DOUBLE
    NULL = MySQLType.NULL
    TIMESTAMP = MySQLType.TIMESTAMP
    BIGINT = MySQLType.LONGLONG
    MEDIUMINT = MySQLType.INT24
    DATE = MySQLType.DATE
    TIME = MySQLType.DURATION
    DATETIME = MySQLType.DATETIME
    YEAR = MySQLType.YEAR
    NEWDATE = MySQLType.NEWDATE
    VARCHAR = MySQLType.VARCHAR  # and VARBINARY
    BIT = MySQLType.BIT
    VECTOR = MySQLType.VECTOR
    JSON = MySQLType.JSON
    DECIMAL = MySQLType.NEWDECIMAL
    ENUM = MySQLType.ENUM
    SET = MySQLType.SET
    TINYTEXT = MySQLType.TINY_BLOB  # and TINYBLOB
    MEDIUMTEXT = MySQLType.MEDIUM_BLOB  # and MEDIUMBLOB
    LONGTEXT = MySQLType.LONG_BLOB  # and LONGBLOB
    TEXT = MySQLType.BLOB  # and BLOB
    VAR_STRING = MySQLType.VAR_STRING
    CHAR = MySQLType.STRING  # and BINARY
    GEOMETRY = MySQLType.GEOMETRY


class ColumnFlag(enum.IntFlag):
    """`f` of a column."""

    BINARY = 1  # the charset is "binary": all types except text, ENUM and SET
    HANDLE_KEY = 2
    GENERATED = 4
    PRIMARY_KEY = 8
    UNIQUE_KEY = 16
    MULTIPLE_KEY = 32
    NULLABLE = 64
    UNSIGNED = 128


class DdlType(enum.IntEnum):
    """`t` of a DDL: TiDB's action codes, as far as TiCDC sends them."""

    CREATE_SCHEMA = Action.CREATE_SCHEMA
    DROP_SCHEMA = Action.DROP_SCHEMA
    CREATE_TABLE = Action.CREATE_TABLE
    DROP_TABLE = Action.DROP_TABLE
    ADD_COLUMN = Action.ADD_COLUMN
    DROP_COLUMN = Action.DROP_COLUMN
    ADD_INDEX = Action.ADD_INDEX
    DROP_INDEX = Action.DROP_INDEX
    ADD_FOREIGN_KEY = Action.ADD_FOREIGN_KEY
    DROP_FOREIGN_KEY = Action.DROP_FOREIGN_KEY
    TRUNCATE_TABLE = Action.TRUNCATE_TABLE
    MODIFY_COLUMN = Action.MODIFY_COLUMN
    REBASE_AUTO_ID = Action.REBASE_AUTO_ID
    RENAME_TABLE = Action.RENAME_TABLE
    SET_DEFAULT_VALUE = Action.SET_DEFAULT_VALUE
    SHARD_ROW_ID = Action.SHARD_ROW_ID
    MODIFY_TABLE_COMMENT = Action.MODIFY_TABLE_COMMENT
    RENAME_INDEX = Action.RENAME_INDEX
    ADD_TABLE_PARTITION = Action.ADD_TABLE_PARTITION
    DROP_TABLE_PARTITION = Action.DROP_TABLE_PARTITION
    CREATE_VIEW = Action.CREATE_VIEW
    MODIFY_TABLE_CHARSET = Action.MODIFY_TABLE_CHARSET
    TRUNCATE_TABLE_PARTITION = Action.TRUNCATE_TABLE_PARTITION
    DROP_VIEW = Action.DROP_VIEW
    RECOVER_TABLE = Action.RECOVER_TABLE
    MODIFY_SCHEMA_CHARSET = Action.MODIFY_SCHEMA_CHARSET
    ADD_PRIMARY_KEY = Action.ADD_PRIMARY_KEY
    DROP_PRIMARY_KEY = Action.DROP_PRIMARY_KEY
    ALTER_INDEX_VISIBILITY = Action.ALTER_INDEX_VISIBILITY
    EXCHANGE_PARTITION = Action.EXCHANGE_PARTITION
    RENAME_TABLES = Action.RENAME_TABLES
    CREATE_TABLES = Action.CREATE_TABLES
    MULTI_SCHEMA_CHANGE = Action.MULTI_SCHEMA_CHANGE
    REORGANIZE_PARTITION = Action.REORGANIZE_PARTITION
    ALTER_TTL = Action.ALTER_TTL
    REMOVE_TTL = Action.REMOVE_TTL
    ALTER_PARTITIONING = Action.ALTER_PARTITIONING
    REMOVE_PARTITIONING = Action.REMOVE_PARTITIONING


_Code = TypeVar("_Code", bound=enum.IntEnum)


def named(codes: type[_Code], number: int) -> _Code | int:
    """Return the code of a number, or the number itself where it has no name."""
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
