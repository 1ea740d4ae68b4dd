"""Canal's protobuf for Kafka, to the rest of Tidemill."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import ProtocolSpec

CANAL = ProtocolSpec(
    format=MessageFormat.CANAL,
    spellings=("canal",),
    options=("delete-only-output-handle-key-columns",),
    encoder="tidemill.kernels.canal:row_encoder",
    reference="tidemill.protocols.canal.encode",
    control="tidemill.protocols.canal.control:control_messages",
    decoder="tidemill.protocols.canal.decode:decode",
    columns="tidemill.kernels.decode.canal_columns:decode_array",
)
