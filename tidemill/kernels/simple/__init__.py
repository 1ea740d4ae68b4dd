"""Rows of the change log → simple protocol (JSON), on the kernels of `templates`.

In: ROW records. Out: MESSAGE records. Read `program.py` first.
"""

from tidemill.kernels.simple.encoder import SimpleRowEncoder

__all__ = ["SimpleRowEncoder"]
