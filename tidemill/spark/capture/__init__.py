"""The parts of a capture that run as Spark jobs: groups whose tasks pull partitions of the log, and the initial load.

In: a capture's settings, from the command line and a control connection. Out: segments of the change log. Each module is started as a
process by the capture, which imports none of them and needs no Spark. Read `groups.py` first.
"""
