"""TiDB's types: bytes → values → text, one module for each family of types. Each module is the reference of a kernel.

In: stored bytes. Out: values and texts. Read `times.py` as an example.
"""
