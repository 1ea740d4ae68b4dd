"""What the column functions that read messages share: the schema and the table that a user asks for, and the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, StructType

from tidemill.protocols.common.images import casts_of


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


def events_of(decoded: Callable[..., pa.Array], event: pa.StructType, *columns: Column | str) -> Column:
    """The column of arrays of `event` that `decoded` makes of Arrow arrays of the columns."""
    kind = ArrayType(cast(StructType, from_arrow_type(event, prefer_timestamp_ntz=True)))
    make: Any = arrow_udf  # its overloads know no nested types
    return cast(Column, make(decoded, kind)(*columns))
