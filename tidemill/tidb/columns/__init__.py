"""Columns of a table as typed Arrow columns: which type each TiDB type becomes (TYPES.md), and the readable decoder of one row.

In: descriptions of columns, cells of rows (`tidemill.tidb.rows`). Out: Arrow types; values of these types.
Read `forms.py`, then `values.py`. The compiled twin is `tidemill.kernels.columns`.
"""
