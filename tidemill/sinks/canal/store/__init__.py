"""The entry store: entries for Canal's clients, in commit order over all tables, in a folder or an object store.

In: entries that tasks made. Out: entries from any position on, for the server.
`segment.py` and `names.py` are the format, without IO. `writer.py` and `publish.py` write, `reader.py` reads, `retention.py` deletes.
Rules: docs/canal-store-format.md. Read `names.py`, then `segment.py`.
"""
