"""Kernels for the rows of a task: merge sorted sources into row records, split updates, find targets, order rows.

The readable twins are in `reference`.

In: Arrow batches of the change log. Out: ROW records, in order, each with its target. Read `reference.py` first.
"""
