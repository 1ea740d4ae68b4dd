"""The driver of a delivery: one batch after the other.

In: an interval of the change log, settings of the changefeed. Out: work items for tasks, then DDLs and resolved events to the sink.
`machine/` decides what is done next and what follows from a failure; `batch.py` does it. `plan.py` divides a batch among tasks,
`epoch_fence.py` ends tasks of older attempts. `inputs/` is what a batch needs to know, `task/` what workers do.
Read `machine/batch_machine.py`, then `batch.py`.
"""
