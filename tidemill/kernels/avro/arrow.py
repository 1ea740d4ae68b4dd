"""Avro messages in an Arrow array → an Arrow struct, column by column. A kernel finds the fields. Reference: `protocols.avro.decode`.

Each column has its default type (`column_type`), or the type that a reader asks for. Values are cast to it, also text to numbers, dates and
timestamps. A date or time outside the calendar ('0000-00-00') is null in a date or timestamp, and stays as it is in text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.kernels.avro import scan
from tidemill.protocols.avro.decode import AvroMessageError, AvroReader, default_value, schema_id, unscaled
from tidemill.protocols.avro.parse import AvroSchemaError, FieldType, Primitive, RecordType
from tidemill.protocols.avro.wire import HEAD_SIZE

LARGEST_DECIMAL = 38
"""Digits of Arrow's and Spark's decimals; wider ones are text."""

_KINDS = {
    Primitive.BOOLEAN: scan.KIND_BOOLEAN,
    Primitive.INT: scan.KIND_VARINT,
    Primitive.LONG: scan.KIND_VARINT,
    Primitive.FLOAT: scan.KIND_FLOAT,
    Primitive.DOUBLE: scan.KIND_DOUBLE,
    Primitive.STRING: scan.KIND_BYTES,
    Primitive.BYTES: scan.KIND_BYTES,
}
_SIMPLE = {
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.STRING: pa.string(),
    Primitive.BYTES: pa.binary(),
}
_UNSIGNED = pa.decimal128(20, 0)
_NO_MOMENT = "^0000|^[0-9]{4}-00|^[0-9]{4}-[0-9]{2}-00"


def column_type(field: FieldType) -> pa.DataType:
    """Return the default type of a column."""
    if field.tidb_type == "BIGINT UNSIGNED":
        return _UNSIGNED
    if field.tidb_type == "BIT":
        return _UNSIGNED if (field.length or 64) > 63 else pa.int64()
    if field.tidb_type == "TIMESTAMP":
        return pa.timestamp("us", "UTC")
    if field.precision is not None:
        return pa.decimal128(field.precision, field.scale or 0) if 0 < field.precision <= LARGEST_DECIMAL else pa.string()
    return _SIMPLE[field.primitive]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column of the result: its name, its type, and its value where a message lacks the field (None: such a message is an error)."""

    name: str
    type: pa.DataType
    missing: pa.Scalar | None


def wanted_of(record: RecordType) -> list[Wanted]:
    """Return the columns of a reader's schema."""
    columns = []
    for field in record.fields:
        kind = column_type(field)
        columns.append(Wanted(field.name, kind, _default(field, kind)))
    return columns


def _default(field: FieldType, kind: pa.DataType) -> pa.Scalar | None:
    """Return the value of a field that a message lacks. It is null for a TIMESTAMP default that is not a moment, like CURRENT_TIMESTAMP."""
    try:
        value = default_value(field)
    except AvroMessageError:
        return None
    if isinstance(value, Decimal) and pa.types.is_string(kind):
        value = f"{value:f}"
    try:
        return pa.scalar(None if isinstance(value, str) and pa.types.is_timestamp(kind) else value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise AvroSchemaError(f"field {field.name}: its default is not of type {kind}: {error}") from None


def wanted_columns(schema: pa.StructType) -> list[Wanted]:
    """Return the columns of a struct. A column that messages lack is null."""
    return [Wanted(schema[i].name, schema[i].type, pa.scalar(None, schema[i].type)) for i in range(schema.num_fields)]


class ArrowReader:
    """Decodes arrays of messages into structs of the wanted columns.

    `text_of` returns a schema's text by its id. `tz` is the name of the zone of TIMESTAMP texts.
    """

    def __init__(self, wanted: list[Wanted], text_of: Callable[[int], str], tz: str = "UTC") -> None:
        self.type = pa.struct([pa.field(one.name, one.type) for one in wanted])
        self._wanted, self._tz = wanted, tz
        self._plain = AvroReader(text_of)

    def decode(self, messages: pa.Array) -> pa.StructArray:
        """Return a struct for each message, null for null. Raises AvroMessageError, AvroSchemaError, and the errors of `text_of`."""
        messages = messages.cast(pa.binary())
        ids = self._ids(messages)
        parts, order = [], []
        for number in np.unique(ids[ids >= 0]).tolist():
            rows = np.flatnonzero(ids == number)
            parts.append(_Messages(messages, rows, self._plain, number).struct(self._wanted, self.type, self._tz))
            order.append(rows)
        if len(parts) == 1 and len(order[0]) == len(messages):
            return parts[0]
        place = np.full(len(messages), -1, np.int64)
        place[np.concatenate([*order, np.empty(0, np.int64)])] = np.arange(sum(map(len, order)))
        together = pa.concat_arrays(parts) if parts else pa.array([], self.type)
        return together.take(pa.array(place, mask=place < 0))

    def _ids(self, messages: pa.Array) -> npt.NDArray[np.int64]:
        """Return the schema id of each message, -1 for null."""
        offsets, data = _buffers(messages)
        present = messages.is_valid().to_numpy(zero_copy_only=False)
        starts = offsets[:-1][present].astype(np.int64)
        short = np.diff(offsets)[present] < HEAD_SIZE
        head = np.zeros((len(starts), HEAD_SIZE), np.int64)
        if len(starts) and not short.all():
            head[~short] = data[starts[~short, None] + np.arange(HEAD_SIZE)]
        wrong = short | (head[:, 0] != 0)
        if wrong.any():
            schema_id(messages.filter(pa.array(present))[int(np.argmax(wrong))].as_py())  # raises
        ids = np.full(len(messages), -1, np.int64)
        ids[present] = head[:, 1:] @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
        return ids


def _buffers(messages: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the offsets of the messages (one more than messages) and the bytes that they point into."""
    _, offsets, data = messages.buffers()
    count = len(messages)
    places = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + count + 1] if offsets else np.zeros(count + 1, np.int32)
    return places, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


class _Messages:
    """Messages of one schema, with the places of their fields."""

    def __init__(self, messages: pa.BinaryArray, rows: npt.NDArray[np.int64], plain: AvroReader, number: int) -> None:
        self.record = plain.writer(number)
        self._count = len(rows)
        offsets, self._data = _buffers(messages)
        rows, offsets = np.ascontiguousarray(rows), np.ascontiguousarray(offsets)
        kinds = [(_KINDS[f.primitive], -1 if f.null_branch is None else f.null_branch) for f in self.record.fields]
        fields = np.array(kinds, np.int32).reshape(-1, 2)
        self._places = np.empty((len(kinds), self._count), np.int64)
        self._lengths = np.empty((len(kinds), self._count), np.int32)
        addresses = (block.ctypes.data for block in (rows, self._data, offsets, fields))
        at_rows, at_data, at_offsets, at_fields = addresses
        found = scan.scan(
            self._count, at_rows, at_data, at_offsets, at_fields, len(kinds), self._places.ctypes.data, self._lengths.ctypes.data
        )
        if found < self._count:
            plain.decode(messages[int(rows[found])].as_py())  # raises: it says what is wrong
            raise AvroMessageError(0, "", "the kernel refuses what the reference reads: a bug")

    def struct(self, wanted: list[Wanted], kind: pa.StructType, tz: str) -> pa.StructArray:
        """Return the wanted columns. A field matches by its name or by its column's true name."""
        by_name = {field.column: i for i, field in enumerate(self.record.fields)} | {f.name: i for i, f in enumerate(self.record.fields)}
        columns = [self._column(one, by_name.get(one.name), tz) for one in wanted]
        return pa.StructArray.from_arrays(columns, fields=list(kind)) if columns else pa.array([{}] * self._count, kind)

    def _column(self, wanted: Wanted, place: int | None, tz: str) -> pa.Array:
        if place is None:
            if wanted.missing is None:
                raise AvroMessageError(0, wanted.name, "messages have no such field, and the reader's schema no default for it")
            return pa.repeat(wanted.missing, self._count)
        try:
            return _cast(self._written(place), wanted.type, tz)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise AvroMessageError(0, wanted.name, f"it cannot be read as {wanted.type}: {error}") from None

    def _written(self, place: int) -> pa.Array:
        """Return a field's values in a type that holds them all. Times and decimals written as text stay text."""
        field, values, lengths = self.record.fields[place], self._places[place], self._lengths[place]
        present = lengths >= 0
        if field.tidb_type == "BIGINT UNSIGNED" and field.primitive is Primitive.LONG:
            return _decimals(np.stack([values, np.zeros_like(values)], axis=1), present, _UNSIGNED)
        if field.tidb_type == "BIT":
            return _decimals(self._numbers(place, signed=False), present, _UNSIGNED)
        if field.precision is not None:
            return self._decimal(place, field, present)
        match field.primitive:
            case Primitive.STRING | Primitive.BYTES:
                found = self._bytes(place, present)
                return _text(found) if field.primitive is Primitive.STRING else found
            case Primitive.BOOLEAN:
                return pa.array(values != 0, mask=~present)
            case Primitive.FLOAT:
                return pa.array(values.astype(np.uint32).view(np.float32), mask=~present)
            case Primitive.DOUBLE:
                return pa.array(values.view(np.float64), mask=~present)
        return pa.array(values, mask=~present)

    def _decimal(self, place: int, field: FieldType, present: npt.NDArray[np.bool_]) -> pa.Array:
        if field.precision is not None and 0 < field.precision <= LARGEST_DECIMAL:
            found = _decimals(self._numbers(place, signed=True), present, pa.decimal128(field.precision, field.scale or 0))
            found.validate(full=True)  # no more digits than the schema has
            return found
        texts = (
            None if raw is None else _decimal_text(unscaled(field, raw), field.scale or 0)
            for raw in self._bytes(place, present).to_pylist()
        )
        return pa.array(texts, pa.string())

    def _numbers(self, place: int, *, signed: bool) -> npt.NDArray[np.int64]:
        """Return big-endian numbers as pairs of words. Raises AvroMessageError for one that has more than 16 bytes."""
        out = np.empty((self._count, 2), np.int64)
        places, lengths = self._places[place], self._lengths[place]
        data = self._data.ctypes.data
        done = scan.numbers(self._count, data, places.ctypes.data, lengths.ctypes.data, int(signed), out.ctypes.data)
        if done < self._count:
            raise AvroMessageError(0, self.record.fields[place].name, f"a number of {int(lengths[done])} bytes is too large")
        return out

    def _bytes(self, place: int, present: npt.NDArray[np.bool_]) -> pa.BinaryArray:
        places, lengths = self._places[place], self._lengths[place]
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        scan.gather(self._count, self._data.ctypes.data, places.ctypes.data, lengths.ctypes.data, offsets.ctypes.data, out.ctypes.data)
        return pa.Array.from_buffers(pa.binary(), self._count, [_bitmap(present), pa.py_buffer(offsets), pa.py_buffer(out)])


def _bitmap(present: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def _decimals(words: npt.NDArray[np.int64], present: npt.NDArray[np.bool_], kind: pa.Decimal128Type) -> pa.Array:
    return pa.Array.from_buffers(kind, len(present), [_bitmap(present), pa.py_buffer(np.ascontiguousarray(words))])


def _decimal_text(number: int, scale: int) -> str:
    digits = f"{abs(number):0{scale + 1}d}"
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if number < 0 else text


def _text(found: pa.BinaryArray) -> pa.StringArray:
    """Return text. Bytes that are not UTF-8 become U+FFFD."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if raw is None else raw.decode("utf-8", "replace") for raw in found.to_pylist()], pa.string())


# Casts


def _cast(values: pa.Array, kind: pa.DataType, tz: str) -> pa.Array:
    """Return the values in the wanted type. Raises ArrowInvalid, ArrowNotImplementedError."""
    if values.type == kind:
        return values
    if pa.types.is_string(values.type) and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return _moments(values, kind, tz)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(kind):
        return values.cast(pa.string()).cast(kind)
    if pa.types.is_integer(values.type) and pa.types.is_decimal(kind):
        return values.cast(pa.decimal128(min(19 + max(kind.scale, 0), LARGEST_DECIMAL), kind.scale)).cast(kind)
    return values.cast(kind)


def _moments(texts: pa.StringArray, kind: pa.DataType, tz: str) -> pa.Array:
    """Parse text to dates or timestamps. A timestamp with a zone is read in `tz`."""
    texts = pc.if_else(pc.match_substring_regex(texts, _NO_MOMENT), pa.scalar(None, pa.string()), texts)
    plain = pa.date32() if pa.types.is_date(kind) else pa.timestamp("us")
    try:
        found = texts.cast(plain)
    except pa.ArrowInvalid:  # some 2021-02-30
        found = pa.array([_moment(text, day=pa.types.is_date(kind)) for text in texts.to_pylist()], plain)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        found = pc.assume_timezone(found, tz, ambiguous="earliest", nonexistent="earliest")
    return found.cast(kind)


def _moment(text: str | None, *, day: bool) -> date | datetime | None:
    try:
        return None if text is None else date.fromisoformat(text[:10]) if day else datetime.fromisoformat(text)
    except ValueError:
        return None
