"""The parts of schema blocks that do not depend on a table: `source`, the transaction, the description of a DDL."""

from __future__ import annotations

from tidemill.protocols.debezium.text import Json, compact


def _field(name: str, kind: str, *, optional: bool = False) -> dict[str, Json]:
    return {"type": kind, "optional": optional, "field": name}


def _described(field: str, kind: str, *, optional: bool = False, **more: Json) -> dict[str, Json]:
    """Return a field in the order of members that DDL messages have."""
    return {"field": field, "optional": optional, "type": kind, **more}


_SNAPSHOT: dict[str, Json] = {
    "type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1,
    "parameters": {"allowed": "true,last,false,incremental"}, "default": "false", "field": "snapshot",
}  # fmt: skip


def source_schema(*, start_ts: bool = False) -> bytes:
    """Return the schema of `source`. `commit_ts` and `cluster_id` are not in it, as in TiCDC. `start_ts`: that member is."""
    members: list[Json] = [
        _field("version", "string"), _field("connector", "string"), _field("name", "string"), _field("ts_ms", "int64"), _SNAPSHOT,
        _field("db", "string"), _field("sequence", "string", optional=True), _field("table", "string", optional=True),
        _field("server_id", "int64"), _field("gtid", "string", optional=True), _field("file", "string"), _field("pos", "int64"),
        _field("row", "int32"), _field("thread", "int64", optional=True), _field("query", "string", optional=True),
    ]  # fmt: skip
    if start_ts:
        members.append(_field("start_ts", "int64"))
    return compact(
        {"type": "struct", "fields": members, "optional": False, "name": "io.debezium.connector.mysql.Source", "field": "source"}
    )


TRANSACTION_SCHEMA = compact(
    {
        "type": "struct",
        "fields": [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")],
        "optional": True, "name": "event.block", "version": 1, "field": "transaction",
    }
)  # fmt: skip
OPERATION_SCHEMA = compact(_field("op", "string")) + b"," + compact(_field("ts_ms", "int64", optional=True))

_TEXTS: Json = {"type": "string", "optional": False}
_COLUMN: dict[str, Json] = {
    "name": "io.debezium.connector.schema.Column", "optional": False, "type": "struct", "version": 1,
    "fields": [
        _described("name", "string"), _described("jdbcType", "int32"), _described("nativeType", "int32", optional=True),
        _described("typeName", "string"), _described("typeExpression", "string", optional=True),
        _described("charsetName", "string", optional=True), _described("length", "int32", optional=True),
        _described("scale", "int32", optional=True), _described("position", "int32"), _described("optional", "boolean", optional=True),
        _described("autoIncremented", "boolean", optional=True), _described("generated", "boolean", optional=True),
        _described("comment", "string", optional=True), _described("defaultValueExpression", "string", optional=True),
        _described("enumValues", "array", optional=True, items=_TEXTS),
    ],
}  # fmt: skip
_TABLE: list[Json] = [
    _described("defaultCharsetName", "string", optional=True),
    _described("primaryKeyColumnNames", "array", optional=True, items=_TEXTS),
    _described("columns", "array", items=_COLUMN),
    _described("comment", "string", optional=True),
]
_CHANGE: dict[str, Json] = {
    "name": "io.debezium.connector.schema.Change", "optional": False, "type": "struct", "version": 1,
    "fields": [
        _described("type", "string"), _described("id", "string"),
        _described("table", "struct", optional=True, name="io.debezium.connector.schema.Table", version=1, fields=_TABLE),
    ],
}  # fmt: skip
_DDL_FIELDS: list[Json] = [
    _described("ts_ms", "int64"), _described("databaseName", "string", optional=True),
    _described("schemaName", "string", optional=True), _described("ddl", "string", optional=True),
    _described("tableChanges", "array", items=_CHANGE),
]  # fmt: skip

DDL_KEY_SCHEMA = compact(
    {
        "type": "struct", "name": "io.debezium.connector.mysql.SchemaChangeKey", "optional": False, "version": 1,
        "fields": [_described("databaseName", "string")],
    }
)  # fmt: skip
DDL_SCHEMA = b"%s[%s,%s]}" % (
    compact({"optional": False, "type": "struct", "version": 1, "name": "io.debezium.connector.mysql.SchemaChangeValue"})[:-1]
    + b',"fields":',
    source_schema(),
    b",".join(map(compact, _DDL_FIELDS)),
)
