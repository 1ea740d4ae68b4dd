"""Which rows of a table may be in each other's way: the unique keys, by columns whose equal values have equal texts.

Two rows that share a value of a unique key must be written in the order of their changes. Hashes of the keys' columns find such rows. A
column may be left out of a hash: then more rows wait for each other, which is never wrong. It must be left out if values that are equal to
the database can have different texts: strings under all collations but the binary one (`'a' = 'a '`), and floats (`0 = -0`).
"""

from __future__ import annotations

from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, IndexInfo, TableInfo

_INEXACT = frozenset({MySQLType.FLOAT, MySQLType.DOUBLE, MySQLType.JSON, MySQLType.VECTOR})
_STRINGS = frozenset(
    {
        *(MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.STRING),
        *(MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB, MySQLType.LONG_BLOB),
    }
)

Columns = tuple[str, ...]


def is_exact(column: ColumnInfo) -> bool:
    """Return whether two values of a column are equal only if their texts are."""
    return column.tp not in _INEXACT and (column.tp not in _STRINGS or column.is_binary)


def _hashable(info: TableInfo, index: IndexInfo) -> Columns:
    """Return the columns of an index that can be hashed; none if its rows cannot be told apart by them."""
    delivered = set(info.output_columns)
    return tuple(
        column.name
        for part, column in zip(index.columns, info.index_columns(index), strict=True)
        if part.length < 0 and column in delivered and is_exact(column)
    )


def conflict_keys(info: TableInfo) -> tuple[Columns, ...] | None:
    """Return the columns to hash of each unique key. None: all rows of the table are written one after the other."""
    if not info.has_usable_key:
        return None
    found: list[Columns] = [(info.pk_column.name,)] if info.pk_column is not None else []
    for index in info.indices:
        if not (index.unique or index.primary):
            continue
        columns = _hashable(info, index)
        if not columns:
            return None
        found.append(columns)
    return tuple(dict.fromkeys(found))


def spread_columns(info: TableInfo) -> Columns:
    """Return the columns by whose hash a table's rows may be spread over tasks; none if one task has to write all of them."""
    keys = conflict_keys(info)
    return keys[0] if keys is not None and len(keys) == 1 else ()


def always_split(info: TableInfo) -> bool:
    """Return whether every update of the table becomes a delete and an insert: without a key nothing else finds the row, and the value of a
    unique key that is computed downstream may change with any column."""
    if not info.has_usable_key:
        return True
    delivered = set(info.output_columns)
    return any((i.unique or i.primary) and (i.condition or not delivered.issuperset(info.index_columns(i))) for i in info.indices)
