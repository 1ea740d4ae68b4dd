"""`from_open_protocol`, an Arrow column function: Kafka's key and value columns → the events of each message."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from tidemill.kernels.decode.open_columns import decode_array
from tidemill.protocols.open.arrow import event_type
from tidemill.sinks.claim_check import ClaimCheckStorage
from tidemill.spark.messages.column_functions import arrow_schema, events_of, table_name


def from_open_protocol(
    key: Column | str,
    value: Column | str,
    schema: StructType | str | None = None,
    *,
    table: str | None = None,
    claim_checks: str | None = None,
    mode: str = "FAILFAST",
) -> Column:
    """An array of the events of a message: explode it. Key and value are Kafka's, binary.

    Without `schema`, `before` and `after` are maps from column names to (type, flags, handle, value, bytes). With one (a StructType or
    DDL text such as "id bigint, price decimal(12,2), at timestamp_ntz") they are structs of its columns; give `table` ("schema.name")
    then, so that rows of other tables are left out. `claim_checks`: the claim-check-storage-uri, to read whole rows from. A message that
    cannot be read ends the query with its place, field and fault; with `mode="PERMISSIVE"` it gives null.

    Raises ValueError for a schema with types that columns cannot have, and for another mode.
    """
    wanted, names = arrow_schema(schema), table_name(table)

    def decoded(keys: pa.Array, values: pa.Array) -> pa.Array:
        fetch = ClaimCheckStorage(claim_checks).fetch if claim_checks else None
        return decode_array(keys, values, wanted, table=names, fetch=fetch)

    return events_of(decoded, event_type(wanted), mode, key, value)
