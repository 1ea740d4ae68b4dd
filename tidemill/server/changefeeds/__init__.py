"""The changefeeds of the server that leads.

In: requests of the API, reports of the delivery host, time. Out: commands to the host, files that servers share, and which tables are
captured. Read `hosting.py` first: it keeps the changefeeds and talks with their host. `questions.py` is what the API asks,
`operations.py` what it changes; `capture_rules.py` decides which tables the capture takes.
"""
