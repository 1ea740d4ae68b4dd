"""The spec of Debezium's JSON."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import Needs, ProtocolSpec

DEBEZIUM = ProtocolSpec(
    format=MessageFormat.DEBEZIUM,
    spellings=("debezium",),
    options=(
        *("enable-tidb-extension", "large-message-handle-compression", "debezium-disable-schema", "debezium-output-old-value"),
        *("debezium-include-start-ts", "cluster-id"),
    ),
    encoder="tidemill.kernels.debezium:DebeziumRowEncoder",
    reference="tidemill.protocols.debezium.encode",
    control="tidemill.protocols.debezium.control:control_messages",
    decoder="tidemill.protocols.debezium.decode:decode",
    no_columns="Spark's from_json reads a message, whose columns are JSON values of their own types",
    needs=frozenset({Needs.CLOCK}),
)
