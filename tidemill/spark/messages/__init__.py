"""Column functions for users: messages of topics, and files → rows, in Arrow batches. A module for each protocol.

In: columns of keys and values. Out: a column of arrays of events, or of structs. Read `column_functions.py`, then `open_protocol.py`.
"""
