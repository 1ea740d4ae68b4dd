"""The driver half of a lake: merges what tasks staged into the tables, does the DDLs, writes the manifest.

In: staged rows of an interval, DDLs. Out: commits of the tables, manifests. `sink` is the whole of it. `partitions` has the DDLs by which
rows leave or change places with their partitions, `dropped` those by which a dropped table comes back. Read `sink.py` first.
"""

from tidemill.sinks.lake.driver.sink import LakeDriverSink

__all__ = ["LakeDriverSink"]
