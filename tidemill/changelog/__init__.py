"""The change log: durable, complete, without duplicates, replayable. Format: docs/change-log-format.md.

In: sorted record batches and the resolved ts of each partition. Out: the same, to any number of readers, until retention removes it.
`log_format.py` defines names and fields, `writer.py` and `reader.py` are the two sides, `files/` has the segments, `storage/` the file
systems. Read `log_format.py` first.
"""
