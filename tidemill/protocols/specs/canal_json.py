"""The spec of Canal-JSON."""

from __future__ import annotations

from tidemill.protocols.options import MessageFormat
from tidemill.protocols.spec import Needs, ProtocolSpec

CANAL_JSON = ProtocolSpec(
    format=MessageFormat.CANAL_JSON,
    spellings=("canal-json",),
    options=(
        *("enable-tidb-extension", "content-compatible", "only-output-updated-columns", "delete-only-output-handle-key-columns"),
        *("large-message-handle-option", "large-message-handle-compression", "claim-check-storage-uri", "claim-check-raw-value"),
        "terminator",
    ),
    encoder="tidemill.kernels.canal_json:CanalJsonRowEncoder",
    reference="tidemill.protocols.canal_json.encode",
    control="tidemill.protocols.canal_json.control:control_messages",
    decoder="tidemill.protocols.canal_json.decode:decode",
    columns="tidemill.protocols.canal_json.arrow:decode_array",
    needs=frozenset({Needs.CLOCK}),
    large_messages=True,
    file_extension=".json",
    from_events=True,
)
