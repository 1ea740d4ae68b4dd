"""CSV, to the rest of Tidemill."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import ProtocolSpec

CSV = ProtocolSpec(
    format=MessageFormat.CSV,
    spellings=("csv",),
    options=(
        *("csv-delimiter", "csv-quote", "csv-null", "csv-include-commit-ts", "csv-binary-encoding-method", "csv-output-old-value"),
        *("csv-output-handle-key", "csv-output-field-header", "terminator"),
    ),
    encoder="tidemill.kernels.csv:CsvRowEncoder",
    reference="tidemill.protocols.csv.encode",
    control="tidemill.protocols.csv.control:control_messages",
    decoder="tidemill.protocols.csv.decode:CsvReader",
    no_columns="files of lines are what Spark and every other tool read as they are",
    file_extension=".csv",
    not_on_kafka="it has no DDLs and no progress, and lines have no key",
)
