"""Seeded writers: rows and DDLs that depend on a seed alone.

In: a seed. Out: SQL statements. `mixed.py` is the ordinary workload, `soak.py` the one with everything that may happen to tables,
`loader.py` makes millions of rows at once. Read `mixed.py` first.
"""
