"""Reading TiKV as of one timestamp.

In: tables and a ts. Out: their rows as RawChange batches, or key-values of the meta range.
Reads live through region changes and wait for locks.
Read `snapshot.py` first.
"""
