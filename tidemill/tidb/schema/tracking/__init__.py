"""How schemas change over time.

In: DDL jobs and meta keys in commit order. Out: the tables of each version, and DDL events with their place among the rows.
`history.py` holds what is known up to a resolved ts, `tracker.py` makes events of jobs, `effects.py` says what a job changes.
Read `tracker.py` first, then `history.py`.
"""
