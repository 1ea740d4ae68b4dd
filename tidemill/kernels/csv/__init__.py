"""Rows of the change log → CSV lines, on the kernels of `templates`.

In: ROW records. Out: lines. Read `program.py` first.
"""

from tidemill.kernels.csv.encoder import CsvRowEncoder

__all__ = ["CsvRowEncoder"]
