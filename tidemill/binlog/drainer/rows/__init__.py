"""The rows of transactions, many at a time, on kernels: what a Drainer takes where it does not look at single rows.

In: binlogs in commit order, the tables that they are of. Out: RAW_CHANGE batches (`batching.py`, which the change log takes too), and rows
as SQL for a database (`encoding.py`). Read `reading.py` first: it says which transactions go this way. The others go row by row, through
`tidemill/binlog/outputs`.
"""
