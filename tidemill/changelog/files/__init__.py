"""The files of a change log: Arrow files with checksums.

In: record batches. Out: segments, and batches of them again, verified. `segment.py` reads and writes them, `arrowfile.py` and `sums.py`
are the format. Read `segment.py` first.
"""
