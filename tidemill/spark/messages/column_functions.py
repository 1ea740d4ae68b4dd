"""What the column functions that read messages share: the schema and the table that a user asks for, and the function itself."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, StructType

from tidemill.errors import MalformedMessage
from tidemill.protocols.common.images import casts_of

Decode = Callable[..., pa.Array]
"""Arrow arrays of the columns, one value a message → what the messages hold. Raises MalformedMessage."""


class Mode(enum.StrEnum):
    """What a message does that cannot be read, by the words of Spark's own readers."""

    FAILFAST = "FAILFAST"  # it ends the query
    PERMISSIVE = "PERMISSIVE"  # it gives null


def mode_of(text: str) -> Mode:
    """The mode of a word in any case. Raises ValueError."""
    try:
        return Mode(text.upper())
    except ValueError:
        raise ValueError(f"mode: {text!r} is neither FAILFAST nor PERMISSIVE") from None


def arrow_schema(schema: StructType | str | None) -> pa.StructType | None:
    """The columns that a user names, as a StructType or as DDL text. Raises ValueError for types that columns cannot have."""
    if schema is None:
        return None
    spark = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    arrow = cast(pa.StructType, to_arrow_type(spark))
    casts_of(arrow)  # raises here, not in a worker
    return arrow


def table_name(table: str | None) -> tuple[str, str] | None:
    """Schema and name of `schema.name`. Raises ValueError."""
    if table is None:
        return None
    schema, dot, name = table.partition(".")
    if not dot or not name:
        raise ValueError(f"a table is given as schema.name, not {table!r}")
    return schema, name


def read_as(decode: Decode, mode: Mode) -> Decode:
    """The function that reads messages in a mode."""
    if mode is Mode.FAILFAST:
        return decode

    def read(*columns: pa.Array) -> pa.Array:
        """A batch that fails is halved until the messages that cannot be read stand alone."""
        try:
            return decode(*columns)
        except MalformedMessage:
            messages = len(columns[0])
            if messages == 1:
                return pa.nulls(1, decode(*(column.slice(0, 0) for column in columns)).type)
            half = messages // 2
            first = read(*(column.slice(0, half) for column in columns))
            return pa.concat_arrays([first, read(*(column.slice(half) for column in columns))])

    return read


def events_of(decode: Decode, event: pa.StructType, mode: str, *columns: Column | str) -> Column:
    """The column of arrays of `event` that `decode` makes of Arrow arrays of the columns.

    Raises ValueError for a mode that does not exist.
    """
    kind = ArrayType(cast(StructType, from_arrow_type(event, prefer_timestamp_ntz=True)))
    make: Any = arrow_udf  # its overloads know no nested types
    return cast(Column, make(read_as(decode, mode_of(mode)), kind)(*columns))
