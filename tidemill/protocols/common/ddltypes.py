"""The DDL types of Canal, Canal-JSON and the simple protocol, by TiDB's action codes."""

from __future__ import annotations

import enum

from tidemill.protocols.open.codes import DdlType as T


class DdlKind(enum.Enum):
    """`type` of a DDL message."""

    CREATE = "CREATE"
    ALTER = "ALTER"
    ERASE = "ERASE"
    TRUNCATE = "TRUNCATE"
    RENAME = "RENAME"
    CINDEX = "CINDEX"
    DINDEX = "DINDEX"
    QUERY = "QUERY"


_KINDS: dict[int, DdlKind] = {
    T.CREATE_TABLE: DdlKind.CREATE,
    T.DROP_TABLE: DdlKind.ERASE,
    T.TRUNCATE_TABLE: DdlKind.TRUNCATE,
    **dict.fromkeys((T.RENAME_TABLE, T.RENAME_TABLES), DdlKind.RENAME),
    **dict.fromkeys((T.ADD_INDEX, T.ADD_PRIMARY_KEY, T.ADD_FOREIGN_KEY), DdlKind.CINDEX),
    **dict.fromkeys((T.DROP_INDEX, T.DROP_PRIMARY_KEY, T.DROP_FOREIGN_KEY), DdlKind.DINDEX),
    **dict.fromkeys(
        (
            T.ADD_COLUMN, T.DROP_COLUMN, T.MODIFY_COLUMN, T.REBASE_AUTO_ID, T.SET_DEFAULT_VALUE, T.MODIFY_TABLE_COMMENT, T.RENAME_INDEX,
            T.ALTER_INDEX_VISIBILITY, T.MODIFY_TABLE_CHARSET, T.ADD_TABLE_PARTITION, T.DROP_TABLE_PARTITION, T.TRUNCATE_TABLE_PARTITION,
            T.REORGANIZE_PARTITION, T.ALTER_PARTITIONING, T.REMOVE_PARTITIONING, T.MULTI_SCHEMA_CHANGE,
        ),
        DdlKind.ALTER,
    ),
}  # fmt: skip


def ddl_kind(action: int) -> DdlKind:
    """Return the type of a DDL. DDLs without their own are QUERY: databases, views, RECOVER, EXCHANGE PARTITION, TTL."""
    return _KINDS.get(action, DdlKind.QUERY)
