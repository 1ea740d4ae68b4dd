"""Rows of the change log → Canal's protobuf, in compiled code.

In: ROW records grouped by target. Out: MESSAGE records, a packet of up to 2048 entries each. References: `tidemill.protocols.canal.encode`
and `entries`. Read `layout.py`, then `columns.py`, then `packet_kernel.py`.
"""

from tidemill.kernels.canal.encoder import CanalRowEncoder

__all__ = ["CanalRowEncoder"]
