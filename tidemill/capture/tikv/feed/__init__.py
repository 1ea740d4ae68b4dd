"""The change streams from the stores.

In: actions of the region state machine. Out: raw messages in `inbox.py`, for the receive path, and the ends of streams. There are two
transports: `http2.py` (Tidemill's own client, fast with many small messages) and `grpc.py`. `connect.py` opens either. Read `puller.py`
first.
"""
