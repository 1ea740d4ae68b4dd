"""`from_canal`, an Arrow column function: Kafka's value column of protocol canal, or single entries → the events of each message."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from tidemill.kernels.decode.canal_columns import decode_array
from tidemill.protocols.canal.arrow import event_type
from tidemill.spark.messages.column_functions import arrow_schema, events_of, table_name


def from_canal(
    value: Column | str,
    schema: StructType | str | None = None,
    *,
    table: str | None = None,
    entries: bool = False,
    mode: str = "FAILFAST",
) -> Column:
    """An array of the events of a message: explode it. The value is Kafka's, binary: a packet, written by Canal, TiCDC or Tidemill; with
    `entries` a single entry, as a client gets it.

    Without `schema`, `before` and `after` are maps from column names to (mysql_type, sql_type, key, updated, value, bytes). With one (a
    StructType or DDL text such as "id bigint, price decimal(12,2)") they are structs of its columns; give `table` ("schema.name") then, so
    that rows of other tables are left out. A message that cannot be read ends the query with its place, field and fault; with
    `mode="PERMISSIVE"` it gives null.

    Raises ValueError for a schema with types that columns cannot have, and for another mode.
    """
    wanted, names = arrow_schema(schema), table_name(table)

    def decoded(values: pa.Array) -> pa.Array:
        return decode_array(values, wanted, table=names, entries=entries)

    return events_of(decoded, event_type(wanted), mode, value)
