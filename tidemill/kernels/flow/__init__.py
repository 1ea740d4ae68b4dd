"""Kernels of a task's flow: merge sorted sources into row records, split updates, find targets, put rows in order.

The readable twins are in `reference`.
"""
