"""The spec of CSV."""

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
    no_columns="Spark and every other tool read its files directly",
    file_extension=".csv",
    not_on_kafka="it has no DDLs and no progress, and its lines have no key",
)
