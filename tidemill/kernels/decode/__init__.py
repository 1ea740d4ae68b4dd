"""Decoding messages into typed columns, in compiled code.

In: Arrow arrays of keys and values. Out: typed Arrow arrays. Reference: the decoders of `tidemill.protocols`.
Read `open_columns.py` first.
"""
