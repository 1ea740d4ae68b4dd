"""The spec of Debezium's Avro with a schema registry."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import Needs, ProtocolSpec

DEBEZIUM_AVRO = ProtocolSpec(
    format=MessageFormat.DEBEZIUM_AVRO,
    spellings=("debezium-avro",),
    options=(
        *("schema-registry", "avro-decimal-handling-mode", "avro-bigint-unsigned-handling-mode", "enable-tidb-extension"),
        *("debezium-output-old-value", "debezium-include-start-ts", "cluster-id"),
    ),
    encoder="tidemill.kernels.debezium_avro:DebeziumAvroRowEncoder",
    reference="tidemill.protocols.debezium_avro.encode",
    control="tidemill.protocols.debezium_avro.control:control_messages",
    decoder="tidemill.protocols.debezium_avro.decode:DebeziumAvroReader",
    no_columns="Spark's from_avro reads a message behind its first five bytes, by the schema that the registry has",
    needs=frozenset({Needs.SCHEMA_IDS, Needs.CLOCK}),
    schemas="tidemill.protocols.debezium_avro.schema:table_schemas",
    needs_keys=True,
)
