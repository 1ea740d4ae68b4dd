"""Keeps the resolved ts moving.

In: the resolved ts of each subscription. Out: what holds the log's resolved ts and why; regions subscribed again, locks resolved.
`detect.py` is pure: arrays in, findings out. `act.py` acts on them.
Read `detect.py` first.
"""
