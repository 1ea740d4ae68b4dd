"""Rules of a changefeed: which tables, which events, which topic and partition, which columns.

In: rules as TiCDC's TOML has them. Out: decisions about tables and rows. Pure.
Read `table_filter.py` and `dispatch.py` first.
"""
