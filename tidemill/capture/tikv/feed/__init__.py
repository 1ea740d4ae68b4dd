"""Streams of changes from the stores.

In: actions of the region state machine. Out: raw messages in `inbox.py`, for the receive path, and what became of each stream.
Two transports do the same: `http2.py` (our own client, for many small messages) and `grpc.py`; `connect.py` opens either.
Read `driver.py` first.
"""
