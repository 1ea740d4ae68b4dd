"""Encoders of Debezium's Avro, in all their settings."""

from __future__ import annotations

from tidemill.kernels.debezium_avro import DebeziumAvroRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.protocols.options import AvroOptions, BigintUnsignedMode, DebeziumOptions, DecimalMode, EncodingOptions, MessageFormat

NOW = 1_795_258_576_000
MODES = [
    EncodingOptions(MessageFormat.DEBEZIUM_AVRO, avro=AvroOptions(decimal, bigint), debezium=DebeziumOptions(False, old, start, "a-b"))
    for decimal, bigint in zip(DecimalMode, BigintUnsignedMode, strict=True)
    for old, start in ((True, False), (False, True))
]


def encoder_of(programs: list[TableProgram], options: EncodingOptions) -> DebeziumAvroRowEncoder:
    """An encoder with ids of one to four bytes, whose clock stands still."""
    ids = [(7 << 4 * (i % 7), (9 << 4 * (i % 7)) + 1) for i in range(len(programs))]
    return DebeziumAvroRowEncoder(programs, options, ids, clock=lambda: NOW)
