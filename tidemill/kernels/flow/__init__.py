"""Kernels for the rows of a task: merge sorted sources into row records, split updates, find targets, order rows.

The readable twins are in `reference`.
"""
