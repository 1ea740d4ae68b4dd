"""Rows of the change log → SQL literals, on the kernels of `templates`. Reference: `tidemill.protocols.sql.literals`.

In: ROW records. Out: literals and hashes of unique keys. Read `program.py` first.
"""

from tidemill.kernels.sql.encoder import SqlRowEncoder, SqlRows

__all__ = ["SqlRowEncoder", "SqlRows"]
