"""What TiDB stores, as pure functions over bytes: keys, rows, types, schemas, DDL text. Read `keys.py` first.

In: bytes. Out: values, descriptions, DDL events.
"""
