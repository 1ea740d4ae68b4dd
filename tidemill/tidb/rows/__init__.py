"""Rows as TiDB stores them: decoding to cells, and encoding back.

In: keys and row values. Out: cells, and the reverse. Read `raw.py`, then `reader.py`.
"""

from tidemill.tidb.rows.cells import Cell
from tidemill.tidb.rows.checksum import Verdict, verify_checksum
from tidemill.tidb.rows.raw import RawRow, RowChecksum, decode_row
from tidemill.tidb.rows.reader import RowReader

__all__ = ["Cell", "RawRow", "RowChecksum", "RowReader", "Verdict", "decode_row", "verify_checksum"]
