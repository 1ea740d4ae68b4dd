"""Finding the values of a row, in compiled code.

In: ROW records, and a program for each table version. Out: the place of each column's bytes. `mount.py` only checks rows.
Reference: `tidemill.tidb.rows`.
Read `program.py`, then `locate.py`.
"""
