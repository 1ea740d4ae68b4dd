"""Avro messages in Confluent's format → the values that TiDB had. In: bytes and schema texts. Out: Python objects. No IO here.

    reader = AvroReader(fetch_text_by_id, tz=ZoneInfo("Asia/Shanghai"))
    record = reader.decode(value)                 # by the schema that the message names
    record = reader.decode(value, reader_schema)  # the same, evolved to a schema of the reader's own

A column's value is: int for integers, BIT and YEAR (BIGINT UNSIGNED up to 2^64 - 1 in both modes); float for FLOAT and DOUBLE; Decimal for
DECIMAL; str for text, ENUM, SET, JSON, VECTOR, DATE, DATETIME and TIME, as TiDB prints them; an aware datetime for TIMESTAMP, whose text is
in the changefeed's zone, or str where it is not a moment ('0000-00-00 00:00:00'); bytes for BLOB and BINARY types; None for NULL.
"""

from __future__ import annotations

import base64
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import NoReturn

from tidemill.errors import MalformedMessage
from tidemill.protocols.avro.parse import FieldType, NoDefault, Primitive, RecordType, parse_schema
from tidemill.protocols.avro.wire import HEAD_SIZE, MAGIC

Value = None | bool | int | float | str | bytes | Decimal | datetime
Raw = None | bool | int | float | str | bytes
_MOST_DIGITS = 200
"""The most digits of a decimal, whatever the schema says. TiDB's decimals have at most 65."""
_EXACT = Context(prec=_MOST_DIGITS)
_LARGEST_FLOAT = sys.float_info.max
_MASK64 = (1 << 64) - 1
_PROMOTIONS = {
    Primitive.INT: (Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE),
    Primitive.LONG: (Primitive.FLOAT, Primitive.DOUBLE),
    Primitive.FLOAT: (Primitive.DOUBLE,),
    Primitive.STRING: (Primitive.BYTES,),
    Primitive.BYTES: (Primitive.STRING,),
}
"""Other types that a reader may ask for, by Avro's rules of promotion."""


class AvroMessageError(MalformedMessage):
    """A message that cannot be decoded: where (`offset`, `field`) and why."""

    def __init__(self, offset: int, field: str, problem: str) -> None:
        self.offset, self.field = offset, field
        super().__init__(f"Avro message, byte {offset}{f', field {field}' if field else ''}: {problem}")


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded key or value: values by field name, in the order of `schema`."""

    schema_id: int
    schema: RecordType
    values: Mapping[str, Value]

    @property
    def columns(self) -> dict[str, Value]:
        """Return values by column name, where the schema tells the column's true name. Fields of the extension are left out."""
        return {field.column: self.values[field.name] for field in self.schema.fields if field.tidb_type}


def schema_id(data: bytes) -> int:
    """Return the id of the schema that a message was written with. Raises AvroMessageError."""
    if len(data) < HEAD_SIZE or data[:1] != MAGIC:
        raise AvroMessageError(0, "", f"it does not begin with a zero byte and a schema id: {data[:8].hex()}")
    return int.from_bytes(data[1:HEAD_SIZE], "big")


class AvroReader:
    """Decodes messages. `text_of` returns the text of a schema by its id, and may raise. It is called once for each id.

    `tz` is the changefeed's time zone, that of TIMESTAMP texts.
    """

    def __init__(self, text_of: Callable[[int], str], *, tz: tzinfo = UTC) -> None:
        self._text_of, self._tz = text_of, tz
        self._known: dict[int, RecordType] = {}

    def writer(self, number: int) -> RecordType:
        """Return the schema of an id. Raises AvroSchemaError, and what `text_of` raises."""
        if number not in self._known:
            self._known[number] = parse_schema(self._text_of(number))
        return self._known[number]

    def decode(self, data: bytes, reader: RecordType | None = None) -> Record:
        """Decode a key or value. With `reader` the record has that schema's fields only; absent fields take its defaults.

        Raises AvroMessageError, AvroSchemaError.
        """
        number = schema_id(data)
        writer = self.writer(number)
        raw = _read(writer, data)
        shown = writer if reader is None else reader
        if reader is not None:
            raw = _resolved(writer, reader, raw)
        return Record(number, shown, {field.name: _tidb_value(field, raw[field.name], self._tz) for field in shown.fields})


# The wire


def _read(record: RecordType, data: bytes) -> dict[str, Raw]:
    raw, at = read_fields(record, data, HEAD_SIZE)
    check_end(data, at)
    return raw


def read_fields(record: RecordType, data: bytes, at: int) -> tuple[dict[str, Raw], int]:
    """Return the values of a record at byte `at`, by field, as Avro has them, and the byte behind it. Raises AvroMessageError."""
    raw: dict[str, Raw] = {}
    for field in record.fields:
        raw[field.name], at = read_field(field, data, at)
    return raw, at


def check_end(data: bytes, at: int) -> None:
    """Raise AvroMessageError if a message does not end at byte `at`."""
    if at != len(data):
        raise AvroMessageError(at, "", f"{len(data) - at} bytes follow the last field: it was not written with this schema")


def read_field(field: FieldType, data: bytes, at: int) -> tuple[Raw, int]:
    """Return a field's value at byte `at` as Avro has it, and the byte behind it. Raises AvroMessageError."""
    if field.null_branch is not None:
        branch, after = _varint(field, data, at)
        if branch not in (0, 1):
            raise AvroMessageError(at, field.name, f"the union has no branch {branch}")
        if branch == field.null_branch:
            return None, after
        at = after
    match field.primitive:
        case Primitive.INT | Primitive.LONG:
            return _varint(field, data, at)
        case Primitive.BOOLEAN:
            return _part(field, data, at, 1) != b"\0", at + 1
        case Primitive.FLOAT:
            return struct.unpack("<f", _part(field, data, at, 4))[0], at + 4
        case Primitive.DOUBLE:
            return struct.unpack("<d", _part(field, data, at, 8))[0], at + 8
    # Text that is not UTF-8 in TiDB is not UTF-8 here either: such bytes become surrogates.
    size, at = _varint(field, data, at)
    part = _part(field, data, at, size)
    return (part if field.primitive is Primitive.BYTES else part.decode("utf-8", "surrogateescape")), at + size


def _varint(field: FieldType, data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    for place in range(at, min(at + 10, len(data))):
        number |= (data[place] & 0x7F) << shift
        if number > _MASK64:
            break
        if data[place] < 0x80:
            return (number >> 1) ^ -(number & 1), place + 1
        shift += 7
    raise AvroMessageError(at, field.name, "an integer does not end, or has more than 64 bits")


def _part(field: FieldType, data: bytes, at: int, size: int) -> bytes:
    if size < 0 or size > len(data) - at:
        raise AvroMessageError(at, field.name, f"{size} bytes are needed, {len(data) - at} are left")
    return data[at : at + size]


# A reader's own schema


def _resolved(writer: RecordType, reader: RecordType, raw: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the values of the reader's fields, by name. Raises AvroMessageError where the two schemas do not fit."""
    written = {field.name: field for field in writer.fields}
    return {
        field.name: _promoted(written[field.name], field, raw[field.name]) if field.name in written else default_of(field)
        for field in reader.fields
    }


def default_of(field: FieldType) -> Raw:
    """Return the default of a field that a message does not have. Raises AvroMessageError where there is none."""
    default = field.default
    if isinstance(default, NoDefault):
        raise AvroMessageError(0, field.name, "the message has no such field, and the reader's schema no default for it")
    if default is None or (default == "null" and field.null_branch == 0):
        return None
    if field.primitive is Primitive.BYTES:
        return _default_bytes(field, default)
    match field.primitive, default:
        case ((Primitive.FLOAT | Primitive.DOUBLE), (int() | float())) if not isinstance(default, bool) and abs(default) <= _LARGEST_FLOAT:
            return float(default)
        case Primitive.BOOLEAN, bool():
            return default
        case ((Primitive.INT | Primitive.LONG), int()) if not isinstance(default, bool) and -_MASK64 <= default <= _MASK64:
            return default
        case Primitive.STRING, str():
            return default
    raise AvroMessageError(0, field.name, f"the default {_cut(repr(default))} is not of type {field.primitive.value}")


def default_value(field: FieldType, tz: tzinfo = UTC) -> Value:
    """Return the default as a value that TiDB would show."""
    return _tidb_value(field, default_of(field), tz)


def _default_bytes(field: FieldType, default: object) -> bytes:
    """Decode the default of a bytes field, which TiCDC writes as base64."""
    try:
        return base64.b64decode(str(default), validate=True)
    except ValueError:
        raise AvroMessageError(0, field.name, f"the default {_cut(repr(default))} is not base64") from None


def _promoted(written: FieldType, wanted: FieldType, raw: Raw) -> Raw:
    if raw is None:
        if wanted.null_branch is None:
            raise AvroMessageError(0, wanted.name, "it is null, which the reader's schema does not allow")
        return None
    if written.primitive is wanted.primitive:
        if (written.precision is None) != (wanted.precision is None) or (written.scale or 0) != (wanted.scale or 0):
            _unfit(written, wanted)
        return raw
    if wanted.primitive not in _PROMOTIONS.get(written.primitive, ()):
        _unfit(written, wanted)
    match raw:
        case str():
            return raw.encode("utf-8", "surrogateescape")
        case bytes():
            return raw.decode("utf-8", "surrogateescape")
    return raw if wanted.primitive is Primitive.LONG else float(raw)


def _unfit(written: FieldType, wanted: FieldType) -> NoReturn:
    problem = f"it was written as {_described(written)}, which cannot be read as {_described(wanted)}"
    raise AvroMessageError(0, wanted.name, problem)


def _described(field: FieldType) -> str:
    return field.primitive.value if field.precision is None else f"decimal({field.precision},{field.scale})"


# Values as TiDB had them


def _tidb_value(field: FieldType, raw: Raw, tz: tzinfo) -> Value:
    """Return the value that TiDB had. Raises AvroMessageError."""
    if raw is None:
        return None
    try:
        return _converted(field, raw, tz)
    except (ValueError, InvalidOperation):
        raise AvroMessageError(0, field.name, f"{_cut(raw)} is not of type {field.tidb_type or 'decimal'}") from None


def _converted(field: FieldType, raw: bool | int | float | str | bytes, tz: tzinfo) -> Value:
    match raw:
        case int() if field.tidb_type == "BIGINT UNSIGNED":
            return raw & _MASK64
        case str() if field.tidb_type == "BIGINT UNSIGNED":
            return int(raw)
        case str() if field.tidb_type == "DECIMAL":
            return Decimal(raw)
        case str() if field.tidb_type == "TIMESTAMP":
            return moment(raw, tz)
        case bytes() if field.scale is not None:
            return Decimal(unscaled(field, raw)).scaleb(-field.scale, _EXACT)
        case bytes() if field.tidb_type == "BIT":
            return int.from_bytes(raw, "big")
    return raw


def unscaled(field: FieldType, raw: bytes) -> int:
    """Return the unscaled number of a decimal. Raises AvroMessageError for more digits than its schema allows, because printing a number
    takes time that grows with the square of its digits."""
    number = int.from_bytes(raw, "big", signed=True)
    digits = min(field.precision or _MOST_DIGITS, _MOST_DIGITS)
    if abs(number) >= 10**digits:
        raise AvroMessageError(0, field.name, f"a decimal of {len(raw)} bytes ({_cut(raw)}) has more than {digits} digits")
    return number


def _cut(raw: Raw) -> str:
    """Return a value for an error message, cut to its first bytes."""
    return repr(raw) if not isinstance(raw, str | bytes) or len(raw) <= 60 else f"{raw[:60]!r}…"


def moment(text: str, tz: tzinfo) -> datetime | str:
    """Return the moment of a TIMESTAMP's text in a zone, or the text itself where it is not a moment."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=tz)
    except ValueError:
        return text
