"""Shared by the encoders of all protocols: the loop that drives a kernel, growing buffers, compression.

In: a kernel and ROW records. Out: MESSAGE records. Read `row_encoder.py` first.
"""
