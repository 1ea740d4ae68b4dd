"""The spec of the simple protocol."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import Needs, ProtocolSpec

SIMPLE = ProtocolSpec(
    format=MessageFormat.SIMPLE,
    spellings=("simple",),
    options=(
        *("encoding-format", "send-bootstrap-interval-in-sec", "send-bootstrap-in-msg-count", "send-bootstrap-to-all-partition"),
        *("send-all-bootstrap-at-start", "large-message-handle-option", "large-message-handle-compression", "claim-check-storage-uri"),
        "claim-check-raw-value",
    ),
    encoder="tidemill.kernels.simple:SimpleRowEncoder",
    reference="tidemill.protocols.simple.encode",
    control="tidemill.protocols.simple.control:control_messages",
    decoder="tidemill.protocols.simple.decode:SimpleDecoder",
    no_columns="an earlier message, perhaps in another batch of Arrow arrays, holds the types of a row",
    needs=frozenset({Needs.FIRST_TARGETS, Needs.CLOCK}),
    large_messages=True,
    describes_tables=True,
    from_events=True,
)
