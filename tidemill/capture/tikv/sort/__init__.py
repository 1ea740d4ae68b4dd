"""From committed rows to segments.

In: committed rows that wait for the resolved ts. Out: sorted rows without duplicates, handed to the log's writer one closed interval at a
time.
`spill.py` and `runs.py` keep on disk what does not fit into memory.
Read `partition.py` first.
"""
