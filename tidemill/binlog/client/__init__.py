"""The pump client: what TiDB does to write its binlogs.

In: binlogs, and the Pumps of the registry. Out: each binlog in one Pump, or an error that says why in none. `pumps.py` (which Pump takes a
binlog) and `attempts.py` (when a write is tried again) are pure: time comes in as seconds. Read `client.py` first; it has the IO.
"""
