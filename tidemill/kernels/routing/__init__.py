"""Routing by a row's columns: whether an update changed a key, and the hash of the dispatchers' columns.

In: ROW records. Out: a flag or a hash for each row.
Read `identity.py` first.
"""
