"""Orders events for the consumer.

In: row events, DDLs and resolved ts of all partitions. Out: whole transactions and DDLs in commit order.
`ordering.py` holds rows back until the resolved ts passes them, `pending.py` and `spill.py` store them, `progress.py` has the offsets.
Read `ordering.py` first.
"""
