"""The parts of a capture that are Spark jobs: groups whose tasks pull partitions of the log, and the initial load.

In: a capture's settings, over the command line and a control connection. Out: segments of the change log.
It is a room of its own because it needs `tidemill.spark`, which the capture does not. Each module is started as a process.
Read `groups.py` first.
"""
