"""`tidemill doctor`: is everything there that a changefeed needs?

In: the addresses and places that `tidemill run` is to be given. Out: a finding for each thing looked at, with a remedy where something is
wrong. Read `findings.py` first, which is pure; `examine.py` runs the checks, and each of `machine.py`, `upstream.py`, `place.py` and
`downstream.py` looks at one side. Nothing is created, and what is written for a test is deleted again.
"""
