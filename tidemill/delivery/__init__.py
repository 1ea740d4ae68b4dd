"""The driver of a delivery: one batch after the other.

In: an interval of the change log, settings of the changefeed. Out: work items for tasks, then DDLs and resolved events to the sink.
`plan.py` divides a batch, `epoch_fence.py` ends tasks of older tries. `inputs/` is what a batch needs to know, `task/` what workers do.
Read `batch.py` first.
"""
