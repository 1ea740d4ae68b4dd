"""Rows of the change log → typed Arrow columns. The compiled code runs a program for each table version.

In: ROW records and a program for each table version. Out: Arrow arrays, one row for each image of a change.
Read `program.py`, then `rows.py`. Reference: `tidemill.tidb.columns.values`.
"""

from tidemill.kernels.columns.builder import Built, ColumnBuilder
from tidemill.kernels.columns.program import ColumnProgram

__all__ = ["Built", "ColumnBuilder", "ColumnProgram"]
