"""Rows of the change log → Canal's protobuf, in compiled code.

In: ROW records grouped by target. Out: MESSAGE records, a packet of up to 2048 entries each. References: `tidemill.protocols.canal.encode`
and `entries`. Read `layout.py`, then `columns.py`, then `packet_kernel.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.kernels.canal.encoder import CanalRowEncoder
from tidemill.kernels.rows.program import TableProgram
from tidemill.protocols.options import EncodingOptions

__all__ = ["CanalRowEncoder", "row_encoder"]


def row_encoder(programs: Sequence[TableProgram], options: EncodingOptions) -> object:
    """The encoder of either form: packets for Kafka, or entries for Canal's clients."""
    if options.canal_server_id is None:
        return CanalRowEncoder(programs, options)
    from tidemill.kernels.canal.entry_messages import EntryRowEncoder  # tasks with a Kafka sink do without

    return EntryRowEncoder(programs, options)
