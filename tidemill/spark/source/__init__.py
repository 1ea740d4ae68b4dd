"""Changes of TiDB as DataFrames: `format("tidemill")` and `format("tidemill.ddl")`, for `spark.read` and `spark.readStream`.

In: a change log and options (`options.py`). Out: Arrow batches, planned and read by Spark's Python processes.
Read `source.py`, then `planner.py` (which rows a task reads) and `reading.py` (how it does).
"""
