"""A changefeed's rules about tables, events, topics, partitions and columns.

In: rules as in TiCDC's TOML file. Out: decisions about tables and rows. Pure.
Read `table_filter.py` and `dispatch.py` first.
"""
