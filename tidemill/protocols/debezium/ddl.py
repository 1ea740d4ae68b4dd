"""Messages of DDLs: the statement, and the table that it leaves. Rules: TYPES.md."""

from __future__ import annotations

from tidemill.protocols.debezium.blocks import DDL_KEY_SCHEMA, DDL_SCHEMA
from tidemill.protocols.debezium.encode import Source
from tidemill.protocols.debezium.text import Json, compact, text
from tidemill.protocols.debezium.values import CURRENT, STRINGS
from tidemill.protocols.options import EncodingOptions
from tidemill.tidb.schema.codes import Action, ColumnFlag, MySQLType
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.schema.typenames import DEFAULT_LENGTHS, type_name

CREATE, ALTER, DROP = "CREATE", "ALTER", "DROP"
CHANGES: dict[int, str] = {
    **dict.fromkeys((Action.CREATE_SCHEMA, Action.CREATE_TABLE, Action.CREATE_TABLES, Action.CREATE_VIEW), CREATE),
    **dict.fromkeys((Action.DROP_SCHEMA, Action.DROP_TABLE, Action.DROP_INDEX, Action.DROP_VIEW, Action.TRUNCATE_TABLE), DROP),
    **dict.fromkeys(
        (
            Action.ADD_COLUMN, Action.MODIFY_COLUMN, Action.DROP_COLUMN, Action.MULTI_SCHEMA_CHANGE, Action.ADD_TABLE_PARTITION,
            Action.REMOVE_PARTITIONING, Action.REORGANIZE_PARTITION, Action.EXCHANGE_PARTITION, Action.ALTER_PARTITIONING,
            Action.TRUNCATE_TABLE_PARTITION, Action.DROP_TABLE_PARTITION, Action.REBASE_AUTO_ID, Action.SET_DEFAULT_VALUE,
            Action.MODIFY_TABLE_COMMENT, Action.MODIFY_TABLE_CHARSET, Action.MODIFY_SCHEMA_CHARSET, Action.ADD_INDEX,
            Action.ALTER_INDEX_VISIBILITY, Action.RENAME_INDEX, Action.RENAME_TABLE, Action.RENAME_TABLES, Action.ADD_PRIMARY_KEY,
            Action.DROP_PRIMARY_KEY,
        ),
        ALTER,
    ),
}  # fmt: skip
"""`type` of a table's change, by TiDB's action code. TiCDC sends no message for other DDLs."""

_BLOBS = frozenset({MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB, MySQLType.LONG_BLOB})
_ZONED = 2014
_JDBC: dict[int, int] = {
    MySQLType.TINY: 5, MySQLType.SHORT: 5, MySQLType.INT24: 4, MySQLType.LONG: 4, MySQLType.LONGLONG: -5, MySQLType.YEAR: 4,
    MySQLType.FLOAT: 6, MySQLType.DOUBLE: 8, MySQLType.NEWDECIMAL: 3, MySQLType.TIMESTAMP: _ZONED, MySQLType.DATETIME: 93,
    MySQLType.DATE: 91, MySQLType.NEWDATE: 91, MySQLType.DURATION: 92, MySQLType.ENUM: 1, MySQLType.SET: 1, MySQLType.STRING: -15,
    MySQLType.BIT: -7, MySQLType.JSON: 1111,
}  # fmt: skip
_JDBC_BINARY: dict[int, int] = {
    **dict.fromkeys(_BLOBS, 2004), MySQLType.VAR_STRING: -3, MySQLType.VARCHAR: -3, MySQLType.STRING: -2,
}  # fmt: skip
_VARCHAR = 12
"""Numbers of java.sql.Types; the second table is for columns with MySQL's BINARY flag. Others are VARCHAR."""

_PLAIN_NAMES = frozenset({MySQLType.YEAR, MySQLType.BIT, MySQLType.VARCHAR, MySQLType.STRING, MySQLType.NEWDECIMAL})
_WITH_CHARSET = (STRINGS - {MySQLType.VAR_STRING}) | {
    MySQLType.TIMESTAMP, MySQLType.DURATION, MySQLType.NEWDECIMAL, MySQLType.ENUM, MySQLType.SET
}  # fmt: skip
_OWN_LENGTH = frozenset(
    {
        MySQLType.BIT, MySQLType.VARCHAR, MySQLType.STRING, MySQLType.VAR_STRING, MySQLType.VECTOR, MySQLType.LONGLONG, MySQLType.FLOAT,
        MySQLType.DOUBLE,
    }
)  # fmt: skip
_SMALL_INTEGERS = frozenset({MySQLType.TINY, MySQLType.SHORT, MySQLType.INT24, MySQLType.LONG})
_TIMES = frozenset({MySQLType.TIMESTAMP, MySQLType.DURATION, MySQLType.DATETIME})
_WITH_SCALE = frozenset({MySQLType.NEWDECIMAL, MySQLType.FLOAT, MySQLType.DOUBLE})


def ddl_message(event: DdlEvent, now_ms: int, options: EncodingOptions) -> tuple[bytes, bytes] | None:
    """Return key and value of a DDL's message, or None for a DDL that has none."""
    change = CHANGES.get(event.type)
    if change is None:
        return None
    source = Source(options.debezium.cluster_id, event.schema, event.table).at(event.ts, now_ms)
    schema = text(event.schema)
    key = b'{"payload":{"databaseName":%s}' % schema
    value = b'{"payload":{"source":%s,"databaseName":%s,"schemaName":null,"ddl":%s,"tableChanges":[%s]}' % (
        source, schema, text(event.query), _table_change(event, change)
    )  # fmt: skip
    if not options.debezium.disable_schema:
        key += b',"schema":' + DDL_KEY_SCHEMA
        value += b',"schema":' + DDL_SCHEMA
    return key + b"}", value + b"}"


def _table_change(event: DdlEvent, change: str) -> bytes:
    """Return the only element of `tableChanges`, or nothing: DDLs of schemas and TRUNCATE TABLE change no table's description."""
    if not event.table or event.type == Action.TRUNCATE_TABLE:
        return b""
    described = None if event.type == Action.DROP_TABLE or event.after is None else _table(event.after.info)
    return compact({"type": change, "id": _identifier(event), "table": described})


def _identifier(event: DdlEvent) -> str:
    """Return the quoted name of the table; both names of one that is renamed; the plain table's of EXCHANGE PARTITION."""
    own = _quoted(event.schema, event.table)
    if event.type == Action.RENAME_TABLE:
        return f"{_quoted(event.pre_schema, event.pre_table)},{own}"
    if event.type == Action.EXCHANGE_PARTITION and event.other is not None:
        return _quoted(event.other.schema, event.other.table)
    return own


def _quoted(schema: str, table: str) -> str:
    return f'"{schema}"."{table}"'


def _table(info: TableInfo) -> Json:
    return {
        "defaultCharsetName": info.charset,
        "primaryKeyColumnNames": _primary_key(info),
        "columns": [_column(column, place) for place, column in enumerate(info.public_columns, 1) if not column.hidden],
        "comment": None,
    }


def _primary_key(info: TableInfo) -> list[str]:
    if info.pk_column is not None:
        return [info.pk_column.name]
    return [] if info.primary_index is None else [part.name for part in info.primary_index.columns]


def _column(column: ColumnInfo, place: int) -> Json:
    jdbc = _jdbc_type(column)
    name = _upper_name(column)
    moved = bool(column.flag & ColumnFlag.AUTO_INCREMENT) or (jdbc == _ZONED and bool(column.flag & ColumnFlag.ON_UPDATE_NOW))
    return {
        "name": column.name,
        "jdbcType": jdbc,
        "nativeType": None,
        "comment": column.comment or None,
        "defaultValueExpression": _default(column),
        "enumValues": [f"'{elem}'" for elem in column.elems] if column.elems else None,
        "typeName": name if column.tp in _PLAIN_NAMES else name + _attributes(column),
        "typeExpression": name if column.tp in _PLAIN_NAMES else name + _suffix(column) + _attributes(column),
        "charsetName": column.charset if column.tp in _WITH_CHARSET and column.charset not in ("", "binary") else None,
        "length": _length(column),
        "scale": column.decimal if column.tp in _WITH_SCALE and column.decimal != -1 else None,
        "position": place,
        "optional": not column.not_null,
        "autoIncremented": moved,
        "generated": moved,
    }


def _jdbc_type(column: ColumnInfo) -> int:
    if column.flag & ColumnFlag.BINARY and column.tp in _JDBC_BINARY:
        return _JDBC_BINARY[column.tp]
    return _JDBC.get(column.tp, _VARCHAR)


def _upper_name(column: ColumnInfo) -> str:
    return type_name(column).upper()


def _attributes(column: ColumnInfo) -> str:
    return " UNSIGNED ZEROFILL" if column.zerofill else " UNSIGNED" if column.unsigned else ""


def _suffix(column: ColumnInfo) -> str:
    """Return the length in `typeExpression`, which few types have."""
    length = DEFAULT_LENGTHS.get(column.tp, -1) if column.flen == -1 else column.flen
    if column.tp == MySQLType.DOUBLE and column.decimal not in (0, -1):
        return f"({length},{column.decimal})"
    if column.tp == MySQLType.VAR_STRING and not column.flag & ColumnFlag.BINARY and length != 1:
        return f"({length})"
    return f"({column.flen})" if column.tp == MySQLType.VECTOR and column.flen != -1 else ""


def _length(column: ColumnInfo) -> int | None:
    """Return the length, or None where it is the type's default."""
    found: int | None = None
    usual = DEFAULT_LENGTHS.get(column.tp, -1)
    if column.tp in _SMALL_INTEGERS:
        usual -= column.unsigned
        usual += column.tp == MySQLType.TINY and column.zerofill
    if column.tp in _TIMES:
        found = column.decimal
    elif column.tp in _OWN_LENGTH or column.tp in _SMALL_INTEGERS:
        found = column.flen if column.flen != usual else None
    elif column.tp in (MySQLType.YEAR, MySQLType.NEWDECIMAL):
        found = column.flen
    elif column.tp == MySQLType.SET:
        found = 2 * len(column.elems) - 1
    elif column.tp == MySQLType.ENUM:
        found = 1
    return None if found == -1 else found


def _default(column: ColumnInfo) -> Json:
    """Return the default as text. CURRENT_TIMESTAMP is 1970, as in Debezium; a BIT's is its digits."""
    if column.default_bit is not None:
        width = max(column.flen, 0) % 8  # of the first byte, which may have fewer digits
        return "".join(f"{byte:0{8 if i else width}b}" for i, byte in enumerate(column.default_bit))
    default = column.default
    if not isinstance(default, str):
        return None if default is None else str(default)
    return "1970-01-01 00:00:00" if default.upper() == CURRENT else default
