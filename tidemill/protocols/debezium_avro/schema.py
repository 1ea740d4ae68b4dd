"""The Avro schemas of a table version: what Confluent's converter makes of those of Debezium's MySQL connector. Rules: TYPES.md.

The key is a record of the handle columns. The value is the envelope: the row before and after, `source`, the operation, times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.errors import SchemaError
from tidemill.protocols.avro.names import field_names
from tidemill.protocols.avro.schema import AvroSchemas
from tidemill.protocols.debezium.fields import Kind, kind_of, parameters_of, tidb_type
from tidemill.protocols.debezium.names import record_name, sanitized
from tidemill.protocols.debezium_avro.values import default_json, scale_of
from tidemill.protocols.options import BigintUnsignedMode, DecimalMode, EncodingOptions
from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

if TYPE_CHECKING:
    from tidemill.tidb.schema.tracking.history import TableVersion

Schema = Mapping[str, Any]
DECIMAL = "org.apache.kafka.connect.data.Decimal"
SOURCE = "io.debezium.connector.mysql.Source"
_AVRO_TYPES = {"int16": "int", "int32": "int", "int64": "long"}
"""Avro's type of a Connect type that has another name. Avro has no int16: the schema names it beside the int."""

_DEFAULT_PRECISION = 10  # of DECIMAL without digits
_STRINGS = frozenset(
    {
        MySQLType.VARCHAR, MySQLType.VAR_STRING, MySQLType.STRING, MySQLType.TINY_BLOB, MySQLType.BLOB, MySQLType.MEDIUM_BLOB,
        MySQLType.LONG_BLOB,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A column in a record. `kind`: its Connect type; `null_branch`: the index of null in its union, None where it is not a union."""

    column: ColumnInfo
    name: str
    kind: Kind
    null_branch: int | None
    schema: Schema


def table_schemas(version: TableVersion, options: EncodingOptions) -> AvroSchemas:
    """Return the schemas of a table version. Raises SchemaError for a column of a type that TiDB does not have."""
    return schemas_of(version.schema, version.table, version.info, options)


def schemas_of(schema: str, table: str, info: TableInfo, options: EncodingOptions) -> AvroSchemas:
    """Return the schemas of a table's description under these names."""
    space = _namespace(options.debezium.cluster_id, schema, table)
    fields = fields_of(info, options)
    key = key_fields(info, fields)
    return AvroSchemas(
        _text(_record("Key", space, [field.schema for field in key])) if key else None,
        _text(_envelope(space, [field.schema for field in fields], start_ts=options.debezium.include_start_ts)),
    )


def fields_of(info: TableInfo, options: EncodingOptions) -> list[Field]:
    """Return the columns of a row, in table order. Raises SchemaError."""
    columns = info.output_columns
    names = field_names(column.name for column in columns)
    return [_field(column, name, true_name, options) for column, (name, true_name) in zip(columns, names, strict=True)]


def key_fields(info: TableInfo, fields: list[Field]) -> list[Field]:
    """Return the handle columns in table order, under the names that they have in the row."""
    handle = set(info.handle_key_ids)
    return [field for field in fields if field.column.id in handle]


def _text(schema: Schema) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _namespace(cluster: str, schema: str, table: str) -> str:
    """Return the namespace of a table's records. Each part is a name in Avro."""
    return ".".join(sanitized(part) or "_" for part in record_name(cluster, schema, table).split("."))


# Columns


def column_kind(column: ColumnInfo, options: EncodingOptions) -> Kind:
    """Return the Connect type of a column: Debezium's for MySQL with its defaults. Raises SchemaError."""
    if column.tp == MySQLType.NEWDECIMAL:
        return Kind("bytes", DECIMAL) if options.avro.decimal_mode is DecimalMode.PRECISE else Kind("string")
    if column.tp == MySQLType.LONGLONG and column.unsigned and options.avro.bigint_unsigned_mode is BigintUnsignedMode.STRING:
        return Kind("string")
    if column.tp in _STRINGS:
        return Kind("bytes" if column.is_binary else "string")
    found = kind_of(column)
    if found is None:
        raise SchemaError(f"column {column.name} is of type {int(column.tp)}, which Debezium's messages cannot hold")
    return found


def _field(column: ColumnInfo, name: str, true_name: str | None, options: EncodingOptions) -> Field:
    kind = column_kind(column, options)
    default = default_json(column, kind.type)
    parameters = _decimal_parameters(column) if kind.name == DECIMAL else parameters_of(column)
    if true_name is not None:
        parameters |= {"tidb_name": true_name}
    avro_type = _type(column, kind, parameters, default)
    schema: dict[str, Any] = {"name": name, "type": avro_type if column.not_null else _optional(avro_type, default)}
    if default is not None or not column.not_null:
        schema["default"] = None if default is None else json.loads(default)
    if options.enable_tidb_extension:
        schema["tidb_type"] = tidb_type(column)
    return Field(column, name, kind, None if column.not_null else int(default is not None), schema)


def _optional(avro_type: object, default: str | None) -> list[object]:
    """Return the union of a type and null. That of the default comes first."""
    return ["null", avro_type] if default is None else [avro_type, "null"]


def _decimal_parameters(column: ColumnInfo) -> dict[str, str]:
    precision = column.flen if column.flen >= 0 else _DEFAULT_PRECISION
    return {"scale": str(scale_of(column)), "connect.decimal.precision": str(precision)}


def _type(column: ColumnInfo, kind: Kind, parameters: Mapping[str, str], default: str | None) -> object:
    """Return the type with its properties, in the order in which the converter adds them; alone, if it has none."""
    found: dict[str, Any] = {"type": _AVRO_TYPES.get(kind.type, kind.type)}
    if kind.name == DECIMAL:
        found |= {"scale": int(parameters["scale"]), "precision": int(parameters["connect.decimal.precision"])}
    if kind.name and kind.versioned:
        found["connect.version"] = 1
    if parameters:
        found["connect.parameters"] = dict(parameters)
    if default is not None:
        found["connect.default"] = json.loads(default)
    if kind.name:
        found["connect.name"] = kind.name
    if kind.type == "int16":
        found["connect.type"] = kind.type
    if kind.name == DECIMAL:
        found["logicalType"] = "decimal"
    return found if len(found) > 1 else found["type"]


# Records


def _record(name: str, space: str, fields: list[Schema], *, version: int | None = None, inherits: bool = False) -> Schema:
    """Return a record. `inherits`: it stands in a record of the same namespace."""
    found: dict[str, Any] = {"type": "record", "name": name}
    if not inherits:
        found["namespace"] = space
    found["fields"] = fields
    if version is not None:
        found["connect.version"] = version
    return found | {"connect.name": f"{space}.{name}"}


def _plain(name: str, avro_type: str) -> Schema:
    return {"name": name, "type": avro_type}


def _nullable(name: str, avro_type: object) -> Schema:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _added(name: str) -> Schema:
    """Return a ts that Debezium's own `source` does not have. With a default, so that either schema reads what the other one wrote."""
    return {"name": name, "type": {"type": "long", "connect.default": 0}, "default": 0}


_SNAPSHOT: Schema = {
    "name": "snapshot",
    "type": [
        {
            "type": "string", "connect.version": 1, "connect.parameters": {"allowed": "true,last,false,incremental"},
            "connect.default": "false", "connect.name": "io.debezium.data.Enum",
        },
        "null",
    ],
    "default": "false",
}  # fmt: skip


def _source(*, start_ts: bool) -> Schema:
    space, _, name = SOURCE.rpartition(".")
    fields = [
        *(_plain(name, "string") for name in ("version", "connector", "name")), _plain("ts_ms", "long"), _SNAPSHOT, _plain("db", "string"),
        _nullable("sequence", "string"), _nullable("table", "string"), _plain("server_id", "long"), _nullable("gtid", "string"),
        _plain("file", "string"), _plain("pos", "long"), _plain("row", "int"), _nullable("thread", "long"), _nullable("query", "string"),
        _added("commit_ts"), *([_added("start_ts")] if start_ts else []),
    ]  # fmt: skip
    return _record(name, space, fields)


def _envelope(space: str, columns: list[Schema], *, start_ts: bool) -> Schema:
    block = [_plain("id", "string"), _plain("total_order", "long"), _plain("data_collection_order", "long")]
    fields = [
        _nullable("before", _record("Value", space, columns, inherits=True)),
        _nullable("after", "Value"),
        {"name": "source", "type": _source(start_ts=start_ts)},
        _plain("op", "string"),
        _nullable("ts_ms", "long"),
        _nullable("transaction", _record("block", "event", block, version=1)),
    ]
    return _record("Envelope", space, fields, version=1)
