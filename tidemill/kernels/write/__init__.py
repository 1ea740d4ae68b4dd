"""Writing one value as text, in compiled code: numbers, times, strings, JSON.

In: a value's stored bytes. Out: text at an address. -1 means that the reference has to do it.
Used by the kernels of all protocols.
Read `values.py` first.
"""
