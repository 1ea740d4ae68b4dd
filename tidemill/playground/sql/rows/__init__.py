"""The playground's DML: rows as keys and values, in transactions.

In: parsed statements. Out: prewrites and commits of TiDB's keys. `rowcodec.py` encodes rows and index entries.
Read `dml.py` first.
"""
