"""Sync points of a database: moments at which it holds exactly what the upstream held.

In: ts of the upstream. Out: which of them are sync points, and a row in the database for each. Read `points.py` first; `moments.py` is
pure.
"""
