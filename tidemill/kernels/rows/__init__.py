"""Finding the values of a row, in compiled code.

In: ROW records, a program for each table version. Out: where each column's bytes are; rows that are only checked (`mount.py`).
Reference: `tidemill.tidb.rows`.
Read `program.py`, then `locate.py`.
"""
