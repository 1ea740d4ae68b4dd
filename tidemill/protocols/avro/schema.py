"""The Avro schemas of a table version: exactly the texts that TiCDC registers, and the facts about each field that encoders need.

A nullable column is a union whose first branch is the type of the default, or `null` without a default. Defaults follow TiCDC's rules.
A default that makes TiCDC fail (`nextval(…)` of a number) is left out here.
"""

from __future__ import annotations

import base64
import enum
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import SchemaError
from tidemill.protocols.avro.names import CHECKSUM, EXTENSION, field_names, sanitize
from tidemill.protocols.common.gotext import json_string
from tidemill.protocols.options import BigintUnsignedMode, DecimalMode, EncodingOptions
from tidemill.tidb.schema.codes import MySQLType as T
from tidemill.tidb.schema.model import ColumnInfo, TableInfo
from tidemill.tidb.types.floats import go_float, to_float32

if TYPE_CHECKING:
    from tidemill.tidb.schema.tracking.history import TableVersion


class Form(enum.IntEnum):
    """How a value that is not null is written."""

    INTEGER = 1  # zig-zag varint, of 64 bits at most
    FLOAT = 2
    DOUBLE = 3
    TEXT = 4  # length and UTF-8 of the cell's text
    BYTES = 5  # length and the bytes
    BIT = 6  # length and the number, big-endian, without leading zeros
    DECIMAL = 7  # length and the unscaled number, big-endian two's complement, as short as can be
    ENUM = 8  # length and the element's name
    SET = 9  # length and the elements' names, joined by commas


class Side(enum.Enum):
    """The key or the value of a message."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Field:
    """A column in a record. `null_branch` is the index of null in its union, None where it is not a union."""

    column: ColumnInfo
    name: str
    form: Form
    null_branch: int | None
    text: str  # its JSON

    @property
    def scale(self) -> int:
        """Digits behind the point of a DECIMAL."""
        return _scale(self.column)


@dataclass(frozen=True, slots=True)
class AvroSchemas:
    """The texts to register for a table version. `key` is None where the table has no handle key."""

    key: str | None
    value: str


def subject(topic: str, side: Side) -> str:
    """Return the subject of a topic's keys or values: TopicNameStrategy, with TiCDC's `_` for `.`."""
    return f"{topic.replace('.', '_')}-{side.value}"


def table_schemas(version: TableVersion, options: EncodingOptions) -> AvroSchemas:
    """Return the schemas of a table version. Raises SchemaError for a column of a type that TiDB does not have."""
    return schemas_of(version.schema, version.table, version.info, options)


def schemas_of(schema: str, table: str, info: TableInfo, options: EncodingOptions) -> AvroSchemas:
    """Return the schemas of a table's description under these names."""
    key, value = key_fields(info, options), value_fields(info, options)
    extra = _extension_fields(options)
    return AvroSchemas(
        _record(schema, table, [f.text for f in key], options) if key else None,
        _record(schema, table, [*(f.text for f in value), *extra], options),
    )


def _record(schema: str, table: str, fields: list[str], options: EncodingOptions) -> str:
    namespace = f"{sanitize(options.avro.namespace)}.{sanitize(schema)}"
    return f'{{"type":"record","name":"{sanitize(table)}","namespace":"{namespace}","fields":[{",".join(fields)}]}}'


def _extension_fields(options: EncodingOptions) -> list[str]:
    if not options.enable_tidb_extension:
        return []
    defaults = ['""', "0", "0", *(['""', "false", "0"] if options.row_checksum else [])]
    kinds = ("string", "long", "long", "string", "boolean", "int")
    return [
        f'{{"default":{default},"name":"{name}","type":"{kind}"}}'
        for default, name, kind in zip(defaults, (*EXTENSION, *CHECKSUM), kinds, strict=False)
    ]


# Fields


def value_fields(info: TableInfo, options: EncodingOptions) -> list[Field]:
    """Return the columns of a value: in table order, or by id where a row checksum is sent (consumers sum in that order)."""
    fields = _fields(info, options)
    return sorted(fields, key=lambda f: f.column.id) if _with_checksum(options) else fields


def key_fields(info: TableInfo, options: EncodingOptions) -> list[Field]:
    """Return the handle columns in table order, under the names that they have in the value."""
    handle = set(info.handle_key_ids)
    return [field for field in _fields(info, options) if field.column.id in handle]


def _with_checksum(options: EncodingOptions) -> bool:
    return options.enable_tidb_extension and options.row_checksum


def _fields(info: TableInfo, options: EncodingOptions) -> list[Field]:
    reserved: tuple[str, ...] = EXTENSION if options.enable_tidb_extension else ()
    reserved += CHECKSUM if _with_checksum(options) else ()
    columns = info.output_columns
    names = field_names((column.name for column in columns), reserved)
    return [_field(column, name, true_name, options) for column, (name, true_name) in zip(columns, names, strict=True)]


def _field(column: ColumnInfo, name: str, true_name: str | None, options: EncodingOptions) -> Field:
    form, avro_type = form_of(column, options)
    kind = _type_text(column, form, avro_type, true_name)
    default = None if form is Form.DECIMAL else _default(column, form)
    if column.not_null:
        head = f'"default":{default},' if default is not None else ""
        return Field(column, name, form, None, f'{{{head}"name":"{name}","type":{kind}}}')
    # TiCDC compares with the text null, so the text default 'null' follows null in the union and is not a valid default.
    null_first = default is None or (default == '"null"' and form not in (Form.BYTES, Form.BIT))
    union = f'["null",{kind}]' if null_first else f'[{kind},"null"]'
    return Field(column, name, form, 0 if null_first else 1, f'{{"default":{default or "null"},"name":"{name}","type":{union}}}')


# Types

_TIDB_TYPES: dict[int, str] = {
    **dict.fromkeys((T.TINY, T.SHORT, T.INT24, T.LONG), "INT"),
    **dict.fromkeys((T.TINY_BLOB, T.BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.VARCHAR, T.VAR_STRING, T.STRING), "TEXT"),
    T.LONGLONG: "BIGINT",
    T.FLOAT: "FLOAT",
    T.DOUBLE: "DOUBLE",
    T.BIT: "BIT",
    T.NEWDECIMAL: "DECIMAL",
    T.ENUM: "ENUM",
    T.SET: "SET",
    T.JSON: "JSON",
    T.DATE: "DATE",
    T.NEWDATE: "DATE",
    T.DATETIME: "DATETIME",
    T.TIMESTAMP: "TIMESTAMP",
    T.DURATION: "TIME",
    T.YEAR: "YEAR",
    T.VECTOR: "TiDBVECTORFloat32",
}


def tidb_type(column: ColumnInfo) -> str:
    """Return the schema's parameter with the column's type in TiDB. Raises SchemaError."""
    name = _TIDB_TYPES.get(column.tp)
    if name is None:
        raise SchemaError(f"column {column.name} is of type {int(column.tp)}, which Avro messages cannot hold")
    if name in ("INT", "BIGINT") and column.unsigned:
        return f"{name} UNSIGNED"
    return "BLOB" if name == "TEXT" and column.is_binary else name


def form_of(column: ColumnInfo, options: EncodingOptions) -> tuple[Form, str]:
    """Return the form of a column's values, and the name of the Avro type."""
    match column.tp:
        case T.TINY | T.SHORT | T.INT24 | T.YEAR:
            return Form.INTEGER, "int"
        case T.LONG:
            return Form.INTEGER, "long" if column.unsigned else "int"
        case T.LONGLONG:
            as_text = column.unsigned and options.avro.bigint_unsigned_mode is BigintUnsignedMode.STRING
            return (Form.TEXT, "string") if as_text else (Form.INTEGER, "long")
        case T.FLOAT:
            return Form.FLOAT, "float"
        case T.DOUBLE:
            return Form.DOUBLE, "double"
        case T.BIT:
            return Form.BIT, "bytes"
        case T.NEWDECIMAL:
            precise = options.avro.decimal_mode is DecimalMode.PRECISE
            return (Form.DECIMAL, "bytes") if precise else (Form.TEXT, "string")
        case T.ENUM:
            return Form.ENUM, "string"
        case T.SET:
            return Form.SET, "string"
    return (Form.BYTES, "bytes") if tidb_type(column) == "BLOB" else (Form.TEXT, "string")


def _type_text(column: ColumnInfo, form: Form, avro_type: str, true_name: str | None) -> str:
    parameters = {"tidb_type": tidb_type(column)}
    if form in (Form.ENUM, Form.SET):
        parameters["allowed"] = ",".join(_escaped(element) for element in column.elems)
    if form is Form.BIT:
        parameters["length"] = str(column.flen if column.flen >= 0 else 1)
    if true_name is not None:
        parameters["tidb_name"] = true_name
    pairs = ",".join(f"{_json(name)}:{_json(parameters[name])}" for name in sorted(parameters))
    logical = f',"logicalType":"decimal","precision":{_precision(column)},"scale":{_scale(column)}' if form is Form.DECIMAL else ""
    return f'{{"type":"{avro_type}","connect.parameters":{{{pairs}}}{logical}}}'


def _escaped(element: str) -> str:
    """Return an ENUM or SET element in `allowed`: commas are escaped, and quotes as a statement has them are undone."""
    return element.replace(",", "\\,").replace("\\'", "'").replace("''", "'")


def _precision(column: ColumnInfo) -> int:
    return column.flen if column.flen >= 0 else 10


def _scale(column: ColumnInfo) -> int:
    return max(column.decimal, 0)


# Defaults

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _default(column: ColumnInfo, form: Form) -> str | None:
    """Return the JSON of a column's default; None where it has none, or none that can be written."""
    if column.tp == T.BIT and column.default_bit is not None:
        return _base64(column.default_bit)
    if column.default is None:
        return None
    text = column.default if isinstance(column.default, str) else json.dumps(column.default)
    match form:
        case Form.INTEGER:
            return _integer_default(column, text)
        case Form.FLOAT | Form.DOUBLE:
            return _float_default(form, text)
        case Form.BYTES | Form.BIT:
            return _base64(text.encode("utf-8", "surrogateescape"))
    return _json(text)


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _integer_default(column: ColumnInfo, text: str) -> str | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    bits = 64 if column.tp in (T.LONGLONG, T.LONG) else 32
    unsigned = column.tp == T.LONGLONG and column.unsigned
    if not (0 <= number < 1 << 64 if unsigned else -(1 << bits - 1) <= number < 1 << bits - 1):
        return None
    wraps = 32 if column.tp == T.LONG and not column.unsigned else bits
    sign = 1 << wraps - 1
    return str((number & (1 << wraps) - 1 ^ sign) - sign)


def _float_default(form: Form, text: str) -> str | None:
    """Return the digits of a double, for FLOAT too: the default of a FLOAT 0.1 is 0.10000000149011612."""
    if not _FLOAT.fullmatch(text):
        return None
    number = float(text)
    if form is Form.FLOAT and math.isfinite(number):
        number = to_float32(number)
    return go_float(number, 64) if math.isfinite(number) else None


def _json(text: str) -> str:
    return json_string(text.encode("utf-8", "surrogateescape")).decode()
