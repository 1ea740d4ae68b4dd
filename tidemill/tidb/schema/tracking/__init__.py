"""Schemas over time: DDL jobs and meta keys in, versions of tables and DDL events out.

In: DDL jobs and meta keys in commit order. Out: versions of tables, and DDL events with their place among the rows.
`history.py` holds all schemas up to a resolved ts, `tracker.py` turns jobs into events, `effects.py` computes what a job changes.
Read `tracker.py` first, then `history.py`.
"""
