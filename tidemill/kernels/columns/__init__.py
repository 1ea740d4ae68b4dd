"""Rows of the change log → typed Arrow columns. The compiled code runs a program for each table version.

In: ROW records and a program for each table version. Out: Arrow arrays, one row for each image of a change.
Or JSON objects, before and after each change (`objects.py`).
Read `program.py`, then `rows.py`. Reference: `tidemill.tidb.columns`.
"""

from tidemill.kernels.columns.builder import Built, ColumnBuilder
from tidemill.kernels.columns.objects_builder import CHANGES, ObjectBuilder, ObjectProgram
from tidemill.kernels.columns.program import ColumnProgram

__all__ = ["CHANGES", "Built", "ColumnBuilder", "ColumnProgram", "ObjectBuilder", "ObjectProgram"]
