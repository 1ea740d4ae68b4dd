"""The sink canal:// : entries for Canal's clients, in a store that the server reads.

In: entries of whole transactions, from tasks that each have a range of commit ts; DDLs from the driver. Out: intervals of an entry store.
`store/` is the store, `task.py` and `driver.py` are the sink's halves. Read `store/__init__.py` first.
"""
