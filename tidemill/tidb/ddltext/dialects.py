"""How a statement is written: byte for byte as TiCDC writes it, or so that another database reads what TiDB read.

`Part` names the places of the grammar where databases differ. The parser asks its dialect for the text of each of them.
"""

from __future__ import annotations

import enum


class Part(enum.Enum):
    """A part of a statement that not every database has, or that it has in other words. The value is TiDB's own text of it."""

    DROP_CHECK = "DROP CHECK"
    ALTER_CHECK = "ALTER CHECK … [NOT] ENFORCED"
    ENFORCED = "ENFORCED"
    NOT_ENFORCED = "NOT ENFORCED"
    COLUMN_REFERENCES = "REFERENCES of a column"
    GENERATED_NOT_NULL = "NOT NULL of a generated column"
    FLOAT_AUTO_INCREMENT = "AUTO_INCREMENT of a FLOAT or DOUBLE"
    COLUMN_FORMAT = "COLUMN_FORMAT, STORAGE"
    COLLATION = "COLLATE"
    CHARSET = "CHARACTER SET"
    VECTOR_TYPE = "VECTOR(n)"
    VISIBLE = "VISIBLE"
    INVISIBLE = "INVISIBLE"
    GLOBAL_KEY = "GLOBAL"
    WITH_PARSER = "WITH PARSER"
    EXPRESSION_INDEX = "an index over an expression"
    MULTI_VALUED_INDEX = "a multi-valued index"
    COLUMNAR_INDEX = "VECTOR INDEX, COLUMNAR INDEX"
    UNIQUE_PARTIAL_INDEX = "UNIQUE … WHERE"
    INDEX_CONDITION = "WHERE of an index"
    MISSING_INDEX = "DROP, RENAME and ALTER INDEX of one that was left out"
    IF_EXISTS = "IF [NOT] EXISTS in ALTER TABLE and CREATE INDEX"
    ALGORITHM = "ALGORITHM, LOCK"
    WITHOUT_VALIDATION = "WITHOUT VALIDATION"
    TIFLASH_REPLICA = "SET TIFLASH REPLICA"
    TIDB_SPEC = "STATS_OPTIONS, ATTRIBUTES, CACHE and the like of ALTER TABLE"
    INTERVAL_PARTITIONS = "INTERVAL partitioning"
    LIST_DEFAULT = "a DEFAULT partition of LIST"
    UPDATE_INDEXES = "UPDATE INDEXES"
    ENGINE = "ENGINE"
    DIRECTORY = "DATA DIRECTORY, INDEX DIRECTORY"
    TIDB_OPTION = "STATS_BUCKETS, STATS_TOPN, … of a table"
    MYSQL_OPTION = "COMPRESSION, ENCRYPTION, SECONDARY_ENGINE, …"
    GLOBAL_TEMPORARY = "CREATE GLOBAL TEMPORARY TABLE"
    RECOVER = "RECOVER TABLE, FLASHBACK TABLE"
    VALUES_ROW = "VALUES ROW(…)"
    TABLE_QUERY = "TABLE t"


class Dialect:
    """TiCDC's bytes: what TiDB's parser prints with TiCDC's flags. Strings of the grammar keep single backslashes."""

    exact = False
    """Whether any reader of the text reads what TiDB read: backslashes are doubled everywhere, functions have their SQL names."""

    def part(self, part: Part, text: str) -> str:
        """Return what stands for a part; `text` is TiDB's. Empty: nothing does."""
        return text

    def index(self, name: str) -> bool:
        """Return whether the database has an index of this name, of the table that the statement alters."""
        return True


class ExactDialect(Dialect):
    """TiDB's SQL with the meaning of the original for every reader."""

    exact = True


TICDC = Dialect()
EXACT = ExactDialect()
