"""Rows of the change log → Canal-JSON, on the kernels of `templates`.

In: ROW records. Out: MESSAGE records. Read `program.py` first.
"""

from tidemill.kernels.canal_json.encoder import CanalJsonRowEncoder

__all__ = ["CanalJsonRowEncoder"]
