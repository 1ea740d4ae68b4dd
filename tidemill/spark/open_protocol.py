"""`from_open_protocol`: Kafka's key and value columns → the events of each message, as an Arrow column function."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, StructType

from tidemill.kernels.decode.open_columns import decode_array
from tidemill.protocols.common.images import casts_of
from tidemill.protocols.open.arrow import event_type
from tidemill.sinks.claim_check import ClaimCheckStorage


def from_open_protocol(
    key: Column | str,
    value: Column | str,
    schema: StructType | str | None = None,
    *,
    table: str | None = None,
    claim_checks: str | None = None,
) -> Column:
    """An array of the events of a message: explode it. Key and value are Kafka's, binary.

    Without `schema`, `before` and `after` are maps from column names to (type, flags, handle, value, bytes). With one (a StructType or
    DDL text such as "id bigint, price decimal(12,2), at timestamp_ntz") they are structs of its columns; give `table` ("schema.name")
    then, so that rows of other tables are left out. `claim_checks`: the claim-check-storage-uri, to read whole rows from. A message that
    cannot be read ends the query with its place, field and fault.

    Raises ValueError for a schema with types that columns cannot have.
    """
    wanted = _arrow_schema(schema)
    names = _table_name(table)
    kind = _spark_type(wanted)

    def decoded(keys: pa.Array, values: pa.Array) -> pa.Array:
        fetch = ClaimCheckStorage(claim_checks).fetch if claim_checks else None
        return decode_array(keys, values, wanted, table=names, fetch=fetch)

    make: Any = arrow_udf  # its overloads know no nested types
    return cast(Column, make(decoded, kind)(key, value))


def _arrow_schema(schema: StructType | str | None) -> pa.StructType | None:
    if schema is None:
        return None
    spark = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    arrow = cast(pa.StructType, to_arrow_type(spark))
    casts_of(arrow)  # raises here, not in a worker
    return arrow


def _table_name(table: str | None) -> tuple[str, str] | None:
    if table is None:
        return None
    schema, dot, name = table.partition(".")
    if not dot or not name:
        raise ValueError(f"a table is given as schema.name, not {table!r}")
    return schema, name


def _spark_type(schema: pa.StructType | None) -> ArrayType:
    return ArrayType(cast(StructType, from_arrow_type(event_type(schema), prefer_timestamp_ntz=True)))
