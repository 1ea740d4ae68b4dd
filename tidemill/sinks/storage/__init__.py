"""`file://` and `s3://` in TiCDC's layout: a folder for each table version, numbered data files, schema and index files, a checkpoint.

In: messages and versions of tables. Out: files. Read `paths.py`, then `task.py`.
"""
