"""Reads TiKV as of one timestamp.

In: tables and a ts. Out: their rows as RawChange batches, or key-values of the meta range. Region changes are handled, and locks are waited
for. Read `snapshot.py` first.
"""
