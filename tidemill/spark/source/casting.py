"""Casts a column to the type that a DataFrame has. Pure."""

from __future__ import annotations

import pyarrow as pa

from tidemill.errors import SchemaError
from tidemill.tidb.columns.forms import LARGEST_DECIMAL


def cast_column(where: str, values: pa.Array | None, kind: pa.DataType, rows: int, hint: str) -> pa.Array:
    """Return values as another type; without values, `rows` nulls. `where` and `hint` are for the error. Raises SchemaError."""
    if values is None:
        return pa.nulls(rows, kind)
    if values.type == kind:
        return values
    try:
        if pa.types.is_integer(values.type) and pa.types.is_decimal(kind):  # Arrow wants room for any number of its own type
            values = values.cast(pa.decimal128(min(19 + kind.scale, LARGEST_DECIMAL), kind.scale))
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{where}: a value of type {values.type} cannot be {kind}: {error}", hint=hint) from None
