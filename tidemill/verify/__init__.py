"""Compares what was delivered with the guarantees.

In: topics. Out: which guarantees hold. Read `guarantees.py` first.
"""
