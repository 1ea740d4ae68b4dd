"""Which stream carries which key range: the region state machine.

In: spans to capture, regions from PD, ends of subscriptions. Out: actions for the driver of the feed (subscribe, cancel, look up).
Pure: no clock, no gRPC. `reactions.py` says how each error is handled. `range_lock.py` keeps two regions from having the same range.
Read `actions.py`, then `machine.py`.
"""
