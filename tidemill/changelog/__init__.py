"""The change log: durable, complete, without duplicates, replayable. Format: docs/change-log-format.md.

In: sorted record batches and the resolved ts of each partition. Out: the same, to any number of readers, until retention removes it.
`layout.py` defines names and fields, `writer.py` and `reader.py` are the two sides, `storage/` has the file systems. Read `layout.py`
first.
"""
