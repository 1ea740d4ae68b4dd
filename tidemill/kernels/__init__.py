"""Compiled kernels for the hot paths. Each names its reference: readable Python that returns the same on every input.

A row that a kernel does not handle, or finds broken, falls back to the reference, which either encodes it or raises the error.
Kernels work on addresses. What their letters mean is in CONTRIBUTING.md; `w_…` are writers that return the new place, or -1. Read
`intrinsics.py`, then `rows/`.

In: rows as ROW records, descriptions of tables, bytes of messages. Out: messages, Arrow buffers, records.
"""
