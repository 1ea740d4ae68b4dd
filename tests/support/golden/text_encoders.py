"""Encoders of the text protocols, in all their settings."""

from __future__ import annotations

from tidemill.kernels.rows.program import TableProgram
from tidemill.kernels.templates.encoder import TextRowEncoder
from tidemill.protocols.all import spec_of
from tidemill.protocols.options import BinaryEncoding, CsvOptions, DebeziumOptions, EncodingOptions, MessageFormat, SimpleOptions
from tidemill.protocols.spec import Needs, load

CANAL_JSON, CSV, SIMPLE = MessageFormat.CANAL_JSON, MessageFormat.CSV, MessageFormat.SIMPLE
DEBEZIUM = MessageFormat.DEBEZIUM


QUIET = SimpleOptions(bootstrap_messages=0, location="Asia/Shanghai")


VARIANTS: dict[str, EncodingOptions] = {
    "canal-json": EncodingOptions(CANAL_JSON),
    "canal-json, changed columns": EncodingOptions(CANAL_JSON, enable_tidb_extension=True, only_output_updated_columns=True),
    "canal-json, content compatible": EncodingOptions(CANAL_JSON, content_compatible=True, delete_only_handle_key_columns=True),
    "csv": EncodingOptions(CSV),
    "csv, everything": EncodingOptions(CSV, csv=CsvOptions("||", "'", "NULL", "\n", True, BinaryEncoding.HEX, True, True)),
    "csv, handles": EncodingOptions(CSV, csv=CsvOptions(output_handle_key=True)),
    "csv, handles in digits": EncodingOptions(CSV, csv=CsvOptions(";", "0", output_old_value=True, output_handle_key=True)),
    "csv, handles in letters": EncodingOptions(CSV, csv=CsvOptions(";", "d", include_commit_ts=True, output_handle_key=True)),
    "csv, handles without quotes": EncodingOptions(CSV, csv=CsvOptions(", ", "", include_commit_ts=True, output_handle_key=True)),
    "csv, no quotes": EncodingOptions(CSV, csv=CsvOptions(",", "", output_old_value=True)),
    "csv, odd quotes": EncodingOptions(CSV, csv=CsvOptions(";", "1", include_commit_ts=True)),
    "csv, odd delimiter": EncodingOptions(CSV, csv=CsvOptions("-", "", binary_encoding=BinaryEncoding.HEX)),
    "simple": EncodingOptions(SIMPLE, simple=QUIET),
    "debezium": EncodingOptions(DEBEZIUM),
    "debezium, payload only": EncodingOptions(DEBEZIUM, debezium=DebeziumOptions(disable_schema=True)),
    "debezium, everything": EncodingOptions(
        DEBEZIUM, enable_tidb_extension=True, debezium=DebeziumOptions(output_old_value=False, include_start_ts=True, cluster_id="a.b")
    ),
}

NO_SLOW_ROWS = ("canal-json", "csv", "csv, handles", "csv, handles in digits", "simple")
"""Variants whose kernel encodes every row, so none is handed back to the reference encoder."""


def encoder_of(programs: list[TableProgram], options: EncodingOptions) -> TextRowEncoder:
    """An encoder whose clock stands still."""
    assert options.protocol is not None
    spec = spec_of(options.protocol)
    given = {"clock": lambda: 1_795_000_000_000} if Needs.CLOCK in spec.needs else {}
    encoder: TextRowEncoder = load(spec.encoder)(programs, options, **given)
    return encoder
