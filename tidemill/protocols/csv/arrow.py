"""TiCDC's CSV → an Arrow array of the lines of each message or file. Spark's column function uses it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.errors import MalformedMessage
from tidemill.protocols.common.images import casts_of, image, placed
from tidemill.protocols.common.typed import Value
from tidemill.protocols.csv.decode import CsvError, CsvLine, CsvReader
from tidemill.protocols.open.decode import Fault
from tidemill.protocols.open.events import RowKind
from tidemill.protocols.options import BinaryEncoding, CsvOptions


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    value: Value


def event_type(schema: pa.StructType) -> pa.StructType:
    """Return the struct type of a line whose columns have `schema`."""
    return pa.struct(
        [
            ("op", pa.string()),  # insert, update, delete
            ("ts", pa.int64()),  # the commit ts, where lines have it
            ("schema", pa.string()),
            ("table", pa.string()),
            ("updated", pa.bool_()),  # half of an update, where lines say so
            ("before", schema),  # of a delete
            ("after", schema),
        ]
    )


def decode_array(values: pa.Array, schema: pa.StructType, options: CsvOptions) -> pa.ListArray:
    """Return the lines of each message or file of a binary or string array, null for null. `schema`: the table's columns in their order.

    Raises MalformedMessage naming the message's place in the array.
    """
    reader, casts = CsvReader(options), casts_of(schema)
    fields = list(schema)

    def record(number: int, line: CsvLine) -> dict[str, Any]:
        def misfit(field: str, problem: str) -> MalformedMessage:
            return CsvError(number, 0, field, problem, Fault.READER)

        if len(line.values) != len(fields):
            raise misfit("", f"it has {len(line.values)} columns, the schema has {len(fields)}")
        columns = [_Named(one.name, _value(one, value, options, misfit)) for one, value in zip(fields, line.values, strict=True)]
        found = image(columns, "columns", casts, lambda _: {}, misfit)
        side = "before" if line.kind is RowKind.DELETE else "after"
        head = {"op": line.kind.value, "ts": line.commit_ts, "schema": line.schema, "table": line.table, "updated": line.updated}
        return {**head, side: found}

    return pa.array([_lines(reader, record, i, one) for i, one in enumerate(values.cast(pa.binary()))], pa.list_(event_type(schema)))


def _lines(reader: CsvReader, record: Any, place: int, value: pa.Scalar) -> Sequence[dict[str, Any]] | None:
    if not value.is_valid:
        return None
    try:
        return [record(number, line) for number, line in enumerate(reader.decode(value.as_py()), 1)]
    except MalformedMessage as error:
        raise placed(error, place) from None


def _value(field: pa.Field, value: Value, options: CsvOptions, misfit: Any) -> Value:
    """A field as its column's cast takes it: bytes are encoded in CSV."""
    if not isinstance(value, bytes):
        return value
    if not pa.types.is_binary(field.type):
        return value.decode("utf-8", "surrogateescape")
    try:
        if options.binary_encoding is BinaryEncoding.HEX:
            return bytes.fromhex(value.decode("ascii"))
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise misfit(field.name, f"expected {options.binary_encoding.value}, for a column that is to be binary") from None
