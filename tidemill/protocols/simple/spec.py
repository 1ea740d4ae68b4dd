"""The simple protocol, to the rest of Tidemill."""

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
    no_columns="a row's types stand in an earlier message of its table, which another batch of Arrow arrays may hold",
    needs=frozenset({Needs.FIRST_TARGETS, Needs.CLOCK}),
    large_messages=True,
    describes_tables=True,
)
