"""`from_canal_json`: Kafka's value column → the events of each message, as an Arrow column function."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, StructType

from tidemill.protocols.canal_json.arrow import decode_array, event_type
from tidemill.protocols.common.images import casts_of
from tidemill.sinks.claim_check import ClaimCheckStorage


def from_canal_json(
    value: Column | str, schema: StructType | str | None = None, *, table: str | None = None, claim_checks: str | None = None
) -> Column:
    """An array of the events of a message: explode it. The value is Kafka's, binary or string, compressed by TiCDC or not.

    Without `schema`, `before` and `after` are maps from column names to (mysql_type, sql_type, key, value, bytes). With one (a StructType
    or DDL text such as "id bigint, price decimal(12,2)") they are structs of its columns; give `table` ("schema.name") then, so that rows
    of other tables are left out. `before` of an update has all columns, also where the message has only those that changed.
    `claim_checks`: the claim-check-storage-uri, to read whole rows from. A message that cannot be read ends the query with its place,
    field and fault.

    Raises ValueError for a schema with types that columns cannot have.
    """
    wanted = _arrow_schema(schema)
    names = None
    if table is not None:
        names = table.partition(".")[::2]
        if not all(names):
            raise ValueError(f"a table is given as schema.name, not {table!r}")

    def decoded(values: pa.Array) -> pa.Array:
        fetch = ClaimCheckStorage(claim_checks).fetch if claim_checks else None
        return decode_array(values, wanted, table=names, fetch=fetch)

    kind = ArrayType(cast(StructType, from_arrow_type(event_type(wanted), prefer_timestamp_ntz=True)))
    make: Any = arrow_udf  # its overloads know no nested types
    return cast(Column, make(decoded, kind)(value))


def _arrow_schema(schema: StructType | str | None) -> pa.StructType | None:
    if schema is None:
        return None
    spark = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    arrow = cast(pa.StructType, to_arrow_type(spark))
    casts_of(arrow)  # raises here, not in a worker
    return arrow
