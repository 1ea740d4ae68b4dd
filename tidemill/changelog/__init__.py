"""The change log: durable, complete, de-duplicated, replayable. Format: docs/change-log-format.md.

In: sorted record batches and resolved ts of each partition. Out: the same again, to any number of readers, until retention removes them.
`layout.py` names files and fields, `writer.py` and `reader.py` are the two sides, `storage/` the places. Read `layout.py` first.
"""
