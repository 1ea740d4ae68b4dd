"""`from_simple`, an Arrow column function: Kafka's value column → the event of each message of the simple protocol."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from tidemill.protocols.simple.arrow import decode_array, event_type
from tidemill.spark.messages.column_functions import arrow_schema, events_of, table_name


def from_simple(value: Column | str, schema: StructType | str | None = None, *, table: str | None = None, mode: str = "FAILFAST") -> Column:
    """An array of the one event of a message: explode it. The value is Kafka's, binary or string, in JSON.

    Messages do not say what their columns are: without `schema`, `before` and `after` are maps from column names to text (base64 for binary
    columns). With one (a StructType or DDL text such as "id bigint, price decimal(12,2)") they are structs of its columns; give `table`
    ("schema.name") then, so that rows of other tables are left out. TIMESTAMP columns are text in the changefeed's time zone. A message
    that cannot be read ends the query with its place, field and fault; with `mode="PERMISSIVE"` it gives null.

    Raises ValueError for a schema with types that columns cannot have, and for another mode.
    """
    wanted, names = arrow_schema(schema), table_name(table)

    def decoded(values: pa.Array) -> pa.Array:
        return decode_array(values, wanted, table=names)

    return events_of(decoded, event_type(wanted), mode, value)
