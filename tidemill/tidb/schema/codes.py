"""Names of the numbers in table descriptions and DDL jobs. A number without a name stays a plain int."""

from __future__ import annotations

import enum


class MySQLType(enum.IntEnum):
    """Type codes of columns, as in MySQL's wire protocol."""

    DECIMAL_OLD = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    DURATION = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    VECTOR = 225
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


class TableMode(enum.IntEnum):
    """What TiDB 9 and newer allow with a table. While it is not NORMAL, rows enter the table without change events."""

    NORMAL = 0
    IMPORT = 1
    RESTORE = 2


class ColumnFlag(enum.IntFlag):
    """TiDB's column flags that describe the column. The parser's own flags are not listed."""

    NOT_NULL = 1
    PRIMARY_KEY = 2
    UNIQUE_KEY = 4
    MULTIPLE_KEY = 8
    BLOB = 16
    UNSIGNED = 32
    ZEROFILL = 64
    BINARY = 128
    ENUM = 256
    AUTO_INCREMENT = 512
    TIMESTAMP = 1024
    SET = 2048
    NO_DEFAULT_VALUE = 4096
    ON_UPDATE_NOW = 8192


LASTING_FLAGS = 0x3FFF
"""The flags above. Higher bits come and go while a DDL runs."""


class SchemaState(enum.IntEnum):
    """The state of an object that enters or leaves the schema."""

    NONE = 0
    DELETE_ONLY = 1
    WRITE_ONLY = 2
    WRITE_REORG = 3
    DELETE_REORG = 4
    PUBLIC = 5
    REPLICA_ONLY = 6
    GLOBAL_TXN_ONLY = 7


class HandleKind(enum.Enum):
    """What a record key ends with: an integer primary key, an encoded primary key, or a hidden row id."""

    INT = "int"
    COMMON = "common"
    HIDDEN = "hidden"


class PartitionType(enum.IntEnum):
    """How a table is partitioned."""

    NONE = 0
    RANGE = 1
    HASH = 2
    LIST = 3
    KEY = 4
    SYSTEM_TIME = 5


class JobState(enum.IntEnum):
    """States of a DDL job."""

    NONE = 0
    RUNNING = 1
    ROLLING_BACK = 2
    ROLLBACK_DONE = 3
    DONE = 4
    CANCELLED = 5
    SYNCED = 6
    CANCELLING = 7
    QUEUEING = 8
    PAUSED = 9
    PAUSING = 10


class Action(enum.IntEnum):
    """What a DDL job does. Codes of newer TiDB versions that are not here pass as plain numbers."""

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
    LOCK_TABLE = 27
    UNLOCK_TABLE = 28
    REPAIR_TABLE = 29
    SET_TIFLASH_REPLICA = 30
    UPDATE_TIFLASH_STATUS = 31
    ADD_PRIMARY_KEY = 32
    DROP_PRIMARY_KEY = 33
    CREATE_SEQUENCE = 34
    ALTER_SEQUENCE = 35
    DROP_SEQUENCE = 36
    ADD_COLUMNS = 37
    DROP_COLUMNS = 38
    MODIFY_AUTO_ID_CACHE = 39
    REBASE_AUTO_RANDOM = 40
    ALTER_INDEX_VISIBILITY = 41
    EXCHANGE_PARTITION = 42
    ADD_CHECK = 43
    DROP_CHECK = 44
    ALTER_CHECK = 45
    RENAME_TABLES = 47
    DROP_INDEXES = 48
    ALTER_TABLE_ATTRIBUTES = 49
    ALTER_PARTITION_ATTRIBUTES = 50
    CREATE_PLACEMENT_POLICY = 51
    ALTER_PLACEMENT_POLICY = 52
    DROP_PLACEMENT_POLICY = 53
    ALTER_PARTITION_PLACEMENT = 54
    ALTER_SCHEMA_PLACEMENT = 55
    ALTER_TABLE_PLACEMENT = 56
    CACHE_TABLE = 57
    ALTER_STATS_OPTIONS = 58
    NO_CACHE_TABLE = 59
    CREATE_TABLES = 60
    MULTI_SCHEMA_CHANGE = 61
    FLASHBACK_CLUSTER = 62
    RECOVER_SCHEMA = 63
    REORGANIZE_PARTITION = 64
    ALTER_TTL = 65
    REMOVE_TTL = 67
    CREATE_RESOURCE_GROUP = 68
    ALTER_RESOURCE_GROUP = 69
    DROP_RESOURCE_GROUP = 70
    ALTER_PARTITIONING = 71
    REMOVE_PARTITIONING = 72
    ADD_COLUMNAR_INDEX = 73


_MYSQL_TYPES = {int(member): member for member in MySQLType}


def mysql_type(code: int) -> MySQLType | int:
    """Return the type of a code, or the code itself when it has no name here."""
    return _MYSQL_TYPES.get(code, code)
