"""The SQL subset of the playground: statements to transactions of rows, meta keys and DDL jobs as TiDB writes them.

In: a statement. Out: a transaction of the store, or rows. Read `session.py` first.
"""
