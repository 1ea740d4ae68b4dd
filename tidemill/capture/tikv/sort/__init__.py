"""From committed rows to segments.

In: rows that wait for the resolved ts. Out: sorted rows without repetitions, handed to the log's writer a closed interval at a time.
`spill.py` and `runs.py` keep on disk what does not fit into memory.
Read `partition.py` first.
"""
