"""`tidemill diff`: the upstream's tables at a ts against those of a downstream.

In: the tables of a cluster (through TiKV) or of a change log, as of one ts, and a downstream. Out: every row that differs, and the SQL that
repairs it. Rows become texts of SQL literals on both sides; a bucket of rows has a sum of their digests (`digest`). A database computes the
sums of its rows itself (`database`, by the expressions of `expressions`). Where sums differ, rows are compared (`rows`). `job` runs all
that on Spark or in this process. Read `session.py` first.
"""
