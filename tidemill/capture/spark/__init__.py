"""The parts of a capture that run as Spark jobs: groups whose tasks pull partitions of the log, and the initial load.

In: a capture's settings, from the command line and a control connection. Out: segments of the change log. Each module is started as a
process. They are a package of their own because they need `tidemill.spark`, which the capture does not. Read `groups.py` first.
"""
