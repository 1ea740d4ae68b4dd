"""The spec of Open Protocol."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import ProtocolSpec

OPEN = ProtocolSpec(
    format=MessageFormat.OPEN,
    spellings=("open-protocol", "default"),
    options=(
        *("max-batch-size", "only-output-updated-columns", "delete-only-output-handle-key-columns", "open-output-old-value"),
        *("large-message-handle-option", "large-message-handle-compression", "claim-check-storage-uri", "claim-check-raw-value"),
    ),
    encoder="tidemill.kernels.open.encoder:OpenRowEncoder",
    reference="tidemill.protocols.open.encode",
    control="tidemill.protocols.open.control:control_messages",
    decoder="tidemill.protocols.open.decode:decode",
    columns="tidemill.kernels.decode.open_columns:decode_array",
    large_messages=True,
    from_events=True,
)
