"""`from_csv`, an Arrow column function: a column of TiCDC's CSV → the changes of each message or file."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from tidemill.protocols.csv.arrow import decode_array, event_type
from tidemill.protocols.options import BinaryEncoding, CsvOptions
from tidemill.spark.messages.column_functions import arrow_schema, events_of


def from_csv(
    value: Column | str,
    schema: StructType | str,
    *,
    delimiter: str = ",",
    quote: str = '"',
    null: str = "\\N",
    terminator: str = "\r\n",
    include_commit_ts: bool = False,
    binary_encoding_method: str = "base64",
    output_old_value: bool = False,
    output_handle_key: bool = False,
    mode: str = "FAILFAST",
) -> Column:
    """An array of the changes of a message, or of a whole file (`spark.read.format("binaryFile")`, column `content`): explode it.

    CSV states neither its columns nor its options: `schema` has the table's columns in their order, and the others are those of the
    changefeed's `[sink.csv]`. A delete has `before`, other changes `after`. A line that cannot be read ends the query with its place, field
    and fault; with `mode="PERMISSIVE"` its message, or file, gives null.

    Raises ValueError for a schema with types that columns cannot have, and for another mode.
    """
    wanted = arrow_schema(schema)
    assert wanted is not None, "a schema is given"
    options = CsvOptions(
        delimiter, quote, null, terminator, include_commit_ts, BinaryEncoding(binary_encoding_method), output_old_value, output_handle_key
    )

    def decoded(values: pa.Array) -> pa.Array:
        return decode_array(values, wanted, options)

    return events_of(decoded, event_type(wanted), mode, value)
