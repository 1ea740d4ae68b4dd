"""A Drainer as a source of the change log: `tidemill capture --binlog`, `tidemill run --binlog`.

In: binlogs in commit order. Out: segments of the change log, as a capture of TiKV writes them; everything behind the log is the same. Read
`capture.py` first, the process; `reading.py` makes changes of TiKV's records out of binlogs, `outlet.py` writes them.
"""
