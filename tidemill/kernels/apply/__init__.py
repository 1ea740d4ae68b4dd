"""Which rows of a window may be written at the same time: those that share no value of a unique key, over any chain of rows.

In: a hash for each unique key of each row. Out: the number of each row's group. `conflicts` calls the kernel; `reference` is readable.

Read `reference.py` first.
"""
