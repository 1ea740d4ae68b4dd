"""The order in which a consumer applies what it has read.

In: row events, DDLs and resolved ts of all partitions. Out: what may be applied, in commit order and whole.
`ordering.py` holds rows back until a resolved ts passes them, `pending.py` and `spill.py` keep them, `progress.py` remembers offsets.
Read `ordering.py` first.
"""
