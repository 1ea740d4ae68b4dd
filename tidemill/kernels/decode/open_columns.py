"""Open Protocol messages → typed Arrow arrays, column by column, without a Python object for each row. Reference: `arrow.decode_plainly`.

It reads ordinary messages of TiCDC and Tidemill: uncompressed JSON whose values have the types that the schema suggests. For anything
else (other JSON types, compressed values, claim checks to read, dates outside the calendar, broken bytes) `read` returns None for the
batch, and the reference decides whether it is an error. Unlike the reference it does not check columns that are not wanted, and reads a
column without `v` as NULL.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tidemill.kernels.decode.split import split_messages
from tidemill.protocols.common.gotext import unquote
from tidemill.protocols.open.arrow import decode_plainly, event_type
from tidemill.protocols.open.codes import FLOATS, INTEGERS, STRINGS, TEXT_BLOBS, ColumnFlag, ColumnType, EventType
from tidemill.protocols.open.decode import Fetch

_HEAD = pa.schema(
    [
        ("ts", pa.uint64()),
        ("scm", pa.string()),
        ("tbl", pa.string()),
        ("rid", pa.int64()),
        ("ptn", pa.int64()),
        ("t", pa.int64()),
        ("ohk", pa.bool_()),
        ("ccl", pa.string()),
    ]
)
_IMAGES = ("u", "p", "d")
_NUMBERS = pa.array(sorted(int(t) for t in INTEGERS), pa.int32())
_FLOATS = pa.array(sorted(int(t) for t in FLOATS), pa.int32())
_BLOBS = frozenset(int(t) for t in TEXT_BLOBS)
_STRINGS = frozenset(int(t) for t in STRINGS)
_ALL_NUMBERS = pa.concat_arrays([_NUMBERS, _FLOATS])

_EMPTY_OBJECT = re.compile(rb"\{\s*\}")


class _Odd(Exception):
    """The batch falls back to the reference."""


def _json_type(kind: pa.DataType, *, unsigned: bool) -> pa.DataType:
    """Return the JSON type of `v` for a wanted column type. With `unsigned` a decimal without fraction is a BIGINT UNSIGNED."""
    if unsigned and _may_be_unsigned(kind):
        return pa.uint64()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    ):
        return pa.string()
    raise _Odd


def _may_be_unsigned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) and kind.scale == 0 and kind.precision >= 20


def read(
    keys: pa.Array, values: pa.Array, event: pa.StructType, schema: pa.StructType, table: tuple[str, str] | None, *, whole: bool
) -> pa.ListArray | None:
    """Return a list of `event` for each message, or None if a message is not ordinary. `whole`: claim checks have to be read."""
    try:
        return _read(keys, values, event, schema, table, whole=whole)
    except (_Odd, pa.ArrowException):
        return None


def _read(
    keys: pa.Array, values: pa.Array, event: pa.StructType, schema: pa.StructType, table: tuple[str, str] | None, *, whole: bool
) -> pa.ListArray:
    counts, heads, bodies = _texts(keys, values)
    head = _parsed(heads, _HEAD)
    body = _parsed_bodies(bodies, schema)
    if len(head) != len(body) or len(head) != counts.sum():
        raise _Odd
    kind = _numpy(head["t"], 0)
    rows, ddls = kind == EventType.ROW, kind == EventType.DDL
    present = {name: np.asarray(body[name].is_valid()) for name in _IMAGES}
    _check(head, body, rows, ddls, kind == EventType.RESOLVED, present)
    if any(_may_be_empty(body[name]) for name in _IMAGES) and _EMPTY_OBJECT.search(bodies):
        raise _Odd  # an image without any column counts as none; one without a wanted column counts
    if whole and head["ccl"].null_count < len(head):
        raise _Odd
    named = pc.fill_null(head["scm"], ""), pc.fill_null(head["tbl"], "")
    is_row, is_named = pa.array(rows), pa.array(rows | ddls)
    images = {name: _image(body[name], schema) for name in _IMAGES}
    before = [pc.coalesce(d, p) for d, p in zip(images["d"], images["p"], strict=True)]
    op = np.where(present["d"], "delete", np.where(present["p"], "update", "insert"))
    members = {
        "type": pa.array(np.where(rows, "row", np.where(ddls, "ddl", "resolved")), pa.string()),
        "op": _where(is_row, pa.array(op, pa.string())),
        "ts": head["ts"].cast(pa.int64()),
        "schema": _where(is_named, named[0]),
        "table": _where(is_named, named[1]),
        "row_id": _where(is_row, head["rid"]),
        "partition": _where(is_row, head["ptn"]),
        "before": _struct(before, schema, present["p"] | present["d"]),
        "after": _struct(images["u"], schema, present["u"]),
        "only_handle_key": _where(is_row, pc.fill_null(head["ohk"], False)),
        "claim_check": _where(is_row, head["ccl"]),
        "query": _where(pa.array(ddls), body["q"]),
        "ddl_type": _where(pa.array(ddls), body["t"]).cast(pa.int32()),
    }
    events = pa.StructArray.from_arrays([members[f.name] for f in event], fields=list(event))
    if table is not None:
        wanted = ~rows | np.asarray(pc.and_(pc.equal(named[0], table[0]), pc.equal(named[1], table[1])))
        events = events.filter(pa.array(wanted))
        counts = np.bincount(np.repeat(np.arange(len(counts)), counts)[wanted], minlength=len(counts)).astype(np.int32)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    mask = keys.is_null() if keys.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), events, type=pa.list_(event), mask=mask)


def _texts(keys: pa.Array, values: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Buffer, pa.Buffer]:
    """Return the number of events in each message, and the texts of their keys and values as lines."""
    keys, values = (_compact(array) for array in (keys, values))
    valid = np.asarray(keys.is_valid()).astype(np.uint8)
    counts = np.zeros(len(keys) + 1, np.int32)
    sizes = np.zeros(2, np.int64)
    out = [np.empty(_bytes(array) + _bytes(keys) // 8 * 3 + 64, np.uint8) for array in (keys, values)]
    places = [buffer.address for array in (keys, values) for buffer in array.buffers()[1:]]
    rest = (valid.ctypes.data, out[0].ctypes.data, out[1].ctypes.data, counts.ctypes.data, sizes.ctypes.data)
    if split_messages(len(keys), *places, *rest) < 0:
        raise _Odd
    head, body = (pa.py_buffer(data[: int(size)]) for data, size in zip(out, sizes, strict=True))
    _check_text(head)
    _check_text(body)
    return counts[:-1], head, body


def _check_text(lines: pa.Buffer) -> None:
    """Check that the bytes are UTF-8, which Arrow's JSON reader does not check. Raises ArrowInvalid."""
    ends = pa.py_buffer(np.array([0, len(lines)], np.int64))
    pa.Array.from_buffers(pa.large_string(), 1, [None, ends, lines]).validate(full=True)


def _compact(array: pa.Array) -> pa.Array:
    """Return the array with int32 offsets that begin at 0, and only its own data."""
    if array.type != pa.binary() or array.offset or array.buffers()[2] is None:
        array = pa.concat_arrays([array.cast(pa.binary()), pa.array([b""], pa.binary())])[: len(array)]
    return array


def _bytes(array: pa.Array) -> int:
    return int(np.frombuffer(array.buffers()[1], np.int32)[len(array)])


def _parsed(lines: pa.Buffer, schema: pa.Schema) -> Any:
    """Parse lines of JSON to a record batch. Members that are not in the schema are ignored."""
    if not len(lines):
        return pa.RecordBatch.from_pylist([], schema)
    read_options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    parse_options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    found = pj.read_json(pa.BufferReader(lines), read_options=read_options, parse_options=parse_options)
    return pa.RecordBatch.from_arrays([found[name].combine_chunks() for name in schema.names], schema=schema)


def _parsed_bodies(lines: pa.Buffer, schema: pa.StructType) -> Any:
    """Return the values of events. Raises _Odd and ArrowException."""

    def body(unsigned: bool) -> pa.Schema:
        columns = [
            (f.name, pa.struct([("t", pa.int32()), ("f", pa.int32()), ("v", _json_type(f.type, unsigned=unsigned))])) for f in schema
        ]
        return pa.schema([*((name, pa.struct(columns)) for name in _IMAGES), ("q", pa.string()), ("t", pa.int64())])

    if any(_may_be_unsigned(field.type) for field in schema):
        try:
            return _parsed(lines, body(True))
        except pa.ArrowInvalid:
            pass
    return _parsed(lines, body(False))


def _numpy(array: Any, missing: int) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(array, missing))


def _check(head: Any, body: Any, rows: Any, ddls: Any, resolved: Any, present: dict[str, Any]) -> None:
    """Check that each event has the members of its type. Raises _Odd."""
    u, p, d = (present[name] for name in _IMAGES)
    has_query = np.asarray(body["q"].is_valid()) & np.asarray(body["t"].is_valid())
    named = np.asarray(head["scm"].is_valid()) & np.asarray(head["tbl"].is_valid())
    fine = np.where(rows, named & (u ^ d) & ~(p & d), np.where(ddls, has_query, resolved))
    if head["ts"].null_count or not fine.all():
        raise _Odd


def _may_be_empty(image: pa.StructArray) -> bool:
    """Return whether some event's image has none of the wanted columns."""
    some = np.zeros(len(image), bool)
    for column in image.flatten():
        some |= np.asarray(column.is_valid())
    return bool((np.asarray(image.is_valid()) & ~some).any())


def _where(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, values, pa.scalar(None, values.type))


def _struct(children: list[pa.Array], schema: pa.StructType, valid: npt.NDArray[np.bool_]) -> pa.StructArray:
    return pa.StructArray.from_arrays(children, fields=list(schema), mask=pa.array(~valid))


def _image(image: pa.StructArray, schema: pa.StructType) -> list[pa.Array]:
    """Return the wanted columns of one image, typed. A missing column is null."""
    return [_column(column, field.type) for column, field in zip(image.flatten(), schema, strict=True)]


def _column(column: pa.StructArray, kind: pa.DataType) -> pa.Array:
    code, flags, value = column.flatten()
    if code.null_count != np.count_nonzero(~np.asarray(column.is_valid())) or flags.null_count != code.null_count:
        raise _Odd  # without type or flags
    if any((pc.min(numbers).as_py() or 0) < 0 for numbers in (code, flags)):
        raise _Odd
    json_type = value.type
    if json_type == pa.string():
        return _text(code, flags, value, kind)
    allowed = _ALL_NUMBERS if json_type == pa.float64() else _NUMBERS
    if not pc.all(pc.is_in(code.drop_null(), allowed)).as_py() and len(code) > code.null_count:
        raise _Odd
    if json_type == pa.uint64():
        return value.cast(pa.decimal128(20, 0)).cast(kind)
    if pa.types.is_boolean(kind):
        return pc.not_equal(value, 0)
    singles = pc.equal(code, int(ColumnType.FLOAT))
    if json_type == pa.float64() and pc.any(singles).as_py():
        if not pc.all(singles).as_py():
            raise _Odd
        value = value.cast(pa.float32())
    return value.cast(kind)


def _text(code: pa.Array, flags: pa.Array, value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values that are JSON strings, read by the column's own type. If the rows of a batch differ in it, they fall back."""
    codes = pc.unique(code.drop_null()).to_pylist()
    if not codes:
        return pa.nulls(len(value), kind)
    if len(codes) > 1 or codes[0] in _ALL_NUMBERS.to_pylist():
        raise _Odd
    is_bytes = codes[0] in _BLOBS or codes[0] in _STRINGS
    if codes[0] in _BLOBS:
        value = pa.array(_decoded(value.to_pylist()), pa.binary())
    elif codes[0] in _STRINGS:
        binary = pc.unique(pc.bit_wise_and(flags.drop_null(), int(ColumnFlag.BINARY))).to_pylist()
        if len(binary) > 1:
            raise _Odd
        if binary[0]:
            value = _unquoted(value)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return value.cast(kind)
    if is_bytes:
        raise _Odd
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pc.assume_timezone(value.cast(pa.timestamp("us")), "UTC").cast(kind)
    return value.cast(kind)


def _decoded(texts: Iterable[str | None]) -> list[bytes | None]:
    try:
        return [None if text is None else base64.b64decode(text, validate=True) for text in texts]
    except ValueError:
        raise _Odd from None


def _unquoted(value: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(value, "\\")).as_py():
        return value.cast(pa.binary())
    try:
        return pa.array([None if text is None else unquote(text) for text in value.to_pylist()], pa.binary())
    except ValueError:
        raise _Odd from None


def decode_array(
    keys: pa.Array,
    values: pa.Array,
    schema: pa.StructType | None = None,
    *,
    table: tuple[str, str] | None = None,
    fetch: Fetch | None = None,
) -> pa.ListArray:
    """Return the same as `decode_plainly`, decoded by columns if all messages are ordinary.

    The arrays hold the events of each message, null for a null key. With `table` (schema, name) only its rows are kept.

    Raises MalformedMessage naming the message's place in the array, the place in it, the field and the fault.
    """
    if schema is not None:
        found = read(keys, values, event_type(schema), schema, table, whole=fetch is not None)
        if found is not None:
            return found
    return decode_plainly(keys, values, schema, table=table, fetch=fetch)
