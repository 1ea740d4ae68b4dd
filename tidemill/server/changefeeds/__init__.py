"""The changefeeds of the server that leads.

In: requests of the API, reports of the delivery host, time. Out: commands to the host, files that servers share, and which tables are
captured. Read `feed_store.py` first: it keeps the changefeeds, and orders the writes of their files. Objects above it hold it, and each
other: `hosting.py` talks with the host, `capture_control.py` with the capture, for the tables that `capture_rules.py` decides on,
`log_claims.py` registers changefeeds in the log, `tables.py` knows the cluster's tables. `questions.py` is what the API asks,
`operations.py` what it changes, `upkeep.py` what time does. `Manager` puts them together.
"""
