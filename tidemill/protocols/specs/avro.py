"""The spec of Avro with a schema registry."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import Needs, ProtocolSpec

AVRO = ProtocolSpec(
    format=MessageFormat.AVRO,
    spellings=("avro", "flat-avro"),
    options=(
        *("enable-tidb-extension", "avro-decimal-handling-mode", "avro-bigint-unsigned-handling-mode", "avro-enable-watermark"),
        *("schema-registry", "integrity-check-level", "corruption-handle-level"),
    ),
    encoder="tidemill.kernels.avro:AvroRowEncoder",
    reference="tidemill.protocols.avro.encode",
    control="tidemill.protocols.avro.control:control_messages",
    decoder="tidemill.protocols.avro.decode:AvroReader",
    columns="tidemill.kernels.avro.arrow:ArrowReader",
    needs=frozenset({Needs.SCHEMA_IDS}),
    schemas="tidemill.protocols.avro.schema:table_schemas",
    needs_keys=True,
)
