"""Keeps the resolved ts moving.

In: the resolved ts of each subscription. Out: what holds the log's resolved ts and why; regions subscribed again, locks resolved.
`detect.py` finds subscriptions without progress, `held.py` the tables that they hold up; `causes.py` has the words for why. All three are
pure. `act.py` acts on what they find. `gc_patience.py`: how long a capture that is stuck may hold back the cluster's garbage collection.
Read `detect.py` first.
"""
