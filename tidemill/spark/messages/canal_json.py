"""`from_canal_json`, an Arrow column function: Kafka's value column → the events of each message."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from tidemill.protocols.canal_json.arrow import decode_array, event_type
from tidemill.sinks.claim_check import ClaimCheckStorage
from tidemill.spark.messages.column_functions import arrow_schema, events_of, table_name


def from_canal_json(
    value: Column | str,
    schema: StructType | str | None = None,
    *,
    table: str | None = None,
    claim_checks: str | None = None,
    mode: str = "FAILFAST",
) -> Column:
    """An array of the events of a message: explode it. The value is Kafka's, binary or string, compressed by TiCDC or not.

    Without `schema`, `before` and `after` are maps from column names to (mysql_type, sql_type, key, value, bytes). With one (a StructType
    or DDL text such as "id bigint, price decimal(12,2)") they are structs of its columns; give `table` ("schema.name") then, so that rows
    of other tables are left out. `before` of an update has all columns, also where the message has only those that changed.
    `claim_checks`: the claim-check-storage-uri, to read whole rows from. A message that cannot be read ends the query with its place,
    field and fault; with `mode="PERMISSIVE"` it gives null.

    Raises ValueError for a schema with types that columns cannot have, and for another mode.
    """
    wanted, names = arrow_schema(schema), table_name(table)

    def decoded(values: pa.Array) -> pa.Array:
        fetch = ClaimCheckStorage(claim_checks).fetch if claim_checks else None
        return decode_array(values, wanted, table=names, fetch=fetch)

    return events_of(decoded, event_type(wanted), mode, value)
