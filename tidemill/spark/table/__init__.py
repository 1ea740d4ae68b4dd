"""Tables of TiDB as of one ts as DataFrames: `format("tidemill.table")`. Rows come straight from TiKV, region by region, in parallel.

In: a cluster, a table, a ts (`options.py`). Out: typed Arrow batches, read by Spark's Python workers.
`bounds.py`, `ranges.py` and `partitions.py` turn filters into key ranges and partitions; `plan.py` makes tasks of them. While a query
runs, a process (`keeper.py`) holds back garbage collection. Read `source.py` first.
"""
