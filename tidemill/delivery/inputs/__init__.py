"""What a batch needs to know before it runs.

In: the log's schema history and the changefeed's settings. Out: packs (tables, routing) for tasks, DDLs in order,
what each log partition has for a batch.
`coverage.py` checks that the log has what the changefeed wants.
Read `log_source.py` first.
"""
