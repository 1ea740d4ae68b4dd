"""Compiled kernels (numba) for the hot paths. Each names its reference: readable Python that returns the same on every input.

A row that a kernel does not handle, or finds broken, falls back to the reference, which either encodes it or raises the error.
Kernels work on addresses. Letters: T constant tables, S scratch, L, X and A layouts, st state words; p where to write, a and n address and
length of a value, `w_…` writers that return the new p, or -1. Read `intrinsics.py`, then `rows/`.
"""
