"""Rows of the change log → Open Protocol messages, in compiled code.

In: ROW records grouped by target. Out: MESSAGE records. Reference: `tidemill.protocols.open.encode` and `batch`.
Read `encoder.py` first.
"""
