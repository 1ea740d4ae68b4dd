"""What keeps the resolved ts moving.

In: how far each subscription is. Out: who holds the watermark and why; regions subscribed again, locks resolved.
`detect.py` is pure: arrays in, findings out. `act.py` acts on them.
Read `detect.py` first.
"""
